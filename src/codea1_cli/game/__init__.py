"""The game, pure: which calls to ask, what a suite and a candidate earn, what the Mistake Book keeps, who is trained.

Nothing here knows torch, Ray, a file or a sandbox: verdicts come in, rewards and events go out.
"""
