"""HumanEval+ and MBPP+: data, prompts, sanitising and verdicts that equal EvalPlus'."""
