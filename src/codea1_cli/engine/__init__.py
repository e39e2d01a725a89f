"""A run at work: the driver, one actor per rank of each policy, and the arena in which they meet.

The path of a step: the driver calls `policy_worker.train` on each rank, which is TRL's `trainer.train()` and returns at
the end. From there TRL calls back: `methods.rollouts` samples, posts to the arena and waits there for rewards;
`trl.callback` reports, evaluates and saves. The arena makes a step's state (`step_state`) when the first rank posts,
has it judged (`judging.step_judge`), and scores it through the run writer (`run_writer`, `methods`, `game.scoring`).
"""
