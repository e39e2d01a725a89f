"""The families that stand alone: small functions of words, numbers, lists and dicts."""

from world.family import Family

Texts = tuple[str, ...]

LETTERS = tuple("abcdeot")
FEW = tuple(range(2, 8))
DIGITS = tuple(range(2, 10))


def _family(
    name: str, arguments: str, wordings: Texts, right: Texts, wrong: Texts, **parameters: tuple[int | str, ...]
) -> Family:
    return Family(name, tuple(arguments.split(", ")), wordings, right, wrong, parameters)


WORDS = [
    _family(
        "count_letter", "s",
        ("Count the letter $c in s.", "Return how often $c occurs in s.", "Return the number of $c in s.", "Tell how many times s has $c.", "How many letters of s are $c?"),
        ("return s.count('$c')", "return sum(1 for c in s if c == '$c')"),
        ("return s[1:].count('$c')", "return s[:-1].count('$c')", "return 1 if '$c' in s else 0"), c=LETTERS,
    ),
    _family(
        "drop_letter", "s",
        ("Remove the letter $c from s.", "Return s without any $c.", "Delete each $c in s.", "Leave every $c out of s.", "What is left of s without the letter $c?"),
        ("return s.replace('$c', '')",), ("return s.replace('$c', ' ')", "return s.replace('$c', '', 1)", "return s.strip('$c')", "return s.replace('$c', '') if len(s) > 1 else s"), c=LETTERS,
    ),
    _family(
        "swap_letter", "s",
        ("Replace each $c in s with $e.", "Change $c to $e in s.", "Return s with $e in place of $c.", "Write $e for every $c in s.", "Put $e where s has $c."),
        ("return s.replace('$c', '$e')",), ("return s.replace('$c', '$e', 1)", "return s.replace('$c', '')", "return s.replace('$e', '$c')"),
        c=tuple("abco"), e=tuple("xyz"),
    ),
    _family(
        "head", "s",
        ("Return the first $k letters of s.", "Take the first $k characters of s.", "Return the leading $k letters of s.", "Cut s after its first $k letters.", "What are the first $k letters of s?"),
        ("return s[:$k]",), ("return s[:$near]", "return s[1:$k]", "return s[:$k] if len(s) > $k else ''"), k=FEW,
    ),
    _family(
        "tail", "s",
        ("Return the last $k letters of s.", "Take the last $k characters of s.", "Return the final $k letters of s.", "Cut s before its last $k letters.", "What are the last $k letters of s?"),
        ("return s[-$k:]",), ("return s[-$near:]", "return s[-$k:-1]", "return s[-$k:] if len(s) > $k else ''"), k=FEW,
    ),
    _family(
        "behead", "s",
        ("Drop the first $k letters of s.", "Skip $k characters at the start of s.", "Return s without its first $k letters.", "Leave out the leading $k letters of s.", "What follows the first $k letters of s?"),
        ("return s[$k:]",), ("return s[$near:]", "return s[$k:-1]", "return s[$k:] if len(s) > $k else s"), k=FEW,
    ),
    _family(
        "stride", "s",
        ("Return every letter of s at a step of $k from the start.", "Take one in $k letters of s.", "Keep letters of s with a step of $k.", "Walk s from its start in steps of $k.", "Which letters of s come at a step of $k?"),
        ("return s[::$k]",), ("return s[::$near]", "return s[1::$k]", "return s[::$k] if len(s) > $k else ''"), k=(2, 3, 4, 5, 6),
    ),
    _family(
        "longer", "s",
        ("Return True if s has more than $k letters.", "Check whether s is longer than $k.", "Decide if the length of s is over $k.", "Tell whether s exceeds $k letters.", "Does s have over $k letters?"),
        ("return len(s) > $k",), ("return len(s) >= $k", "return len(s) > $near", "return len(s) != $k"), k=FEW,
    ),
    _family(
        "reverse", "s",
        ("Reverse s.", "Return s backwards.", "Return the letters of s in reverse.", "Turn s around.", "What is s read from its end?"),
        ("return s[::-1]", "return ''.join(reversed(s))"), ("return s[:0:-1]", "return s[-2::-1]", "return s[::-1] if s[0] > 'b' else s"),
    ),
    _family(
        "vowels", "s",
        ("Count the vowels in s.", "Return how many vowels are in s.", "Return the number of vowels in s.", "Tell how many vowels s has.", "How many letters of s are vowels?"),
        ("return sum(1 for c in s if c in 'aeiou')", "return len([c for c in s if c in 'aeiou'])"),
        ("return sum(1 for c in s if c in 'aeio')", "return sum(1 for c in s[1:] if c in 'aeiou')", "return sum(1 for c in set(s) if c in 'aeiou')"),
    ),
    _family(
        "mirror", "s",
        ("Check whether s is a palindrome.", "Return True if s reads the same backwards.", "Decide if s equals its reverse.", "Tell whether s is its own reverse.", "Is s the same from both ends?"),
        ("return s == s[::-1]",), ("return s[0] == s[-1]", "return len(s) > 1 and s == s[::-1]", "return s[:1] == s[-1:]", "return len(s) < 3 or s == s[::-1]"),
    ),
    _family(
        "starts", "s",
        ("Check whether s starts with $c.", "Return True if the first letter of s is $c.", "Decide if s begins with $c.", "Tell whether $c comes first in s.", "Is $c the first letter of s?"),
        ("return s.startswith('$c')", "return s[:1] == '$c'"), ("return s[0] == '$c'", "return '$c' in s", "return len(s) > 1 and s[0] == '$c'"), c=LETTERS,
    ),
    _family(
        "ends", "s",
        ("Check whether s ends with $c.", "Return True if the last letter of s is $c.", "Decide if s finishes with $c.", "Tell whether $c comes last in s.", "Is $c the last letter of s?"),
        ("return s.endswith('$c')", "return s[-1:] == '$c'"), ("return s[-1] == '$c'", "return '$c' in s", "return len(s) > 1 and s[-1] == '$c'"), c=LETTERS,
    ),
    _family(
        "times", "s",
        ("Repeat s $k times.", "Return s written $k times.", "Return $k copies of s joined.", "Join $k copies of s.", "What is s said $k times?"),
        ("return s * $k",), ("return s * $near", "return s * $k if len(s) > 1 else s", "return s * $k if s else ' '"), k=(2, 3, 4, 5, 6),
    ),
]  # fmt: skip

NUMBERS = [
    _family(
        "scale", "n",
        ("Multiply n by $k and add $j.", "Return $k times n plus $j.", "Return n scaled by $k and increased by $j.", "Take $k times n, then add $j.", "What is $k times n plus $j?"),
        ("return n * $k + $j",), ("return abs(n) * $k + $j", "return n * $k + $j if n > 0 else $j", "return n * $k + $j if n else 0"), k=(2, 3, 5), j=(1, 2, 4, 6),
    ),
    _family(
        "divides", "n",
        ("Check whether $k divides n.", "Return True if n is a multiple of $k.", "Decide if n is divisible by $k.", "Tell whether n divides evenly by $k.", "Is n a multiple of $k?"),
        ("return n % $k == 0",), ("return n > 0 and n % $k == 0", "return n == $k", "return n % $near == 0"), k=DIGITS,
    ),
    _family(
        "clamp", "n",
        ("Limit n to the range $k to $j.", "Clamp n between $k and $j.", "Return n kept within $k and $j.", "Hold n to no less than $k and no more than $j.", "Bound n by $k below and $j above."),
        ("return max($k, min($j, n))", "return min($j, max($k, n))"), ("return max($k, n)", "return min($j, n)", "return max(0, min($j, n))"), k=(1, 2, 3), j=(6, 7, 8, 9),
    ),
    _family(
        "digit_sum", "n",
        ("Return the sum of the digits of n.", "Add up the digits of n.", "Compute the digit total of n.", "Sum the decimal digits of n.", "What do the digits of n add up to?"),
        ("return sum(int(c) for c in str(abs(n)))",), ("return sum(int(c) for c in str(n))", "return sum(int(c) for c in str(n)[1:])", "return abs(n) % 10"),
    ),
    _family(
        "sum_up_to", "n",
        ("Return the sum of the whole numbers from $k to n.", "Add up $k through n.", "Compute the total of $k up to n.", "Sum the integers from $k to n.", "What do $k to n add up to?"),
        ("return sum(range($k, n + 1))",), ("return sum(range($k, n))", "return sum(range($k + 1, n + 1))", "return sum(range(1, n + 1))"), k=(2, 3, 4, 5, 6),
    ),
    _family(
        "buzz", "n",
        ("Return 'buzz' if $k divides n, else n.", "Give 'buzz' for multiples of $k, otherwise n.", "Return n, or 'buzz' when n is divisible by $k.", "Put 'buzz' in place of n when $k divides it.", "Say 'buzz' for a multiple of $k and n for the rest."),
        ("return 'buzz' if n % $k == 0 else n",), ("return 'buzz' if n == $k else n", "return 'buzz' if n > 0 and n % $k == 0 else n", "return 'buzz' if n % $near == 0 else n"), k=tuple(range(3, 10)),
    ),
    _family(
        "apart", "n, m",
        ("Check whether n and m differ by more than $k.", "Return True if the gap of n and m is over $k.", "Decide if n and m are further than $k apart.", "Tell whether n is more than $k away from m.", "Are n and m over $k apart?"),
        ("return abs(n - m) > $k",), ("return n - m > $k", "return abs(n - m) >= $k", "return abs(n - m) > $near"), k=FEW,
    ),
    _family(
        "larger", "n, m",
        ("Return the larger of n and m.", "Find the maximum of n and m.", "Return whichever of n and m is bigger.", "Give the greater of n and m.", "Which of n and m is larger?"),
        ("return max(n, m)", "return n if n > m else m"), ("return max(abs(n), abs(m))", "return max(n, m, 0)", "return m if n > 0 else n"),
    ),
    _family(
        "sign", "n",
        ("Return 1 if n is above $k, -1 if it is below, else 0.", "Compare n with $k: 1 for more, -1 for less, 0 for equal.", "Return -1, 0 or 1 as n is less than, equal to or more than $k.", "Tell by 1, 0 or -1 if n is over, at or under $k.", "Is n over (1), at (0) or under (-1) the value $k?"),
        ("return (n > $k) - (n < $k)", "return 0 if n == $k else 1 if n > $k else -1"), ("return 1 if n > $k else -1", "return (n >= $k) - (n < $k)", "return 1 if n > $k else 0"), k=FEW,
    ),
    _family(
        "beyond", "n",
        ("Return how far n is above $k, or 0.", "Return the excess of n over $k, or 0 if none.", "Compute by how much n exceeds $k, or 0.", "Give what n has beyond $k, or 0.", "How much more than $k is n? Return 0 if it is not more."),
        ("return max(n - $k, 0)", "return n - $k if n > $k else 0"), ("return n - $k", "return abs(n - $k)", "return max(n - $near, 0)"), k=FEW,
    ),
]  # fmt: skip

LISTS = [
    _family(
        "item", "xs",
        ("Return item $k of xs counting from 0, or 0 if missing.", "Get index $k of xs, or 0 if there is none.", "Return xs at position $k, or 0.", "Look up index $k in xs, 0 by default.", "What is at index $k of xs? Return 0 if nothing is."),
        ("return xs[$k] if len(xs) > $k else 0",), ("return xs[$k]", "return xs[$k] if len(xs) >= $k else 0", "return xs[$k] if len(xs) > $k else -1"), k=(1, 2, 3, 4),
    ),
    _family(
        "top", "xs",
        ("Return the $k largest of xs in falling order.", "List the top $k of xs.", "Return the biggest $k numbers of xs, largest first.", "Give the $k greatest of xs, greatest first.", "Which are the $k largest of xs? Start with the largest."),
        ("return sorted(xs)[::-1][:$k]", "return sorted(xs, reverse=True)[:$k]"), ("return sorted(set(xs))[::-1][:$k]", "return sorted(xs)[-$k:]", "return sorted(xs)[::-1][:$near]"), k=(2, 3, 4, 5),
    ),
    _family(
        "rotate", "xs",
        ("Rotate xs left by $k.", "Move the first $k items of xs to the end.", "Shift xs left by $k places.", "Put the first $k items of xs behind the rest.", "Turn xs to the left by $k places."),
        ("return xs[$k:] + xs[:$k]",), ("return xs[$near:] + xs[:$near]", "return xs[$k:]", "return xs[$k:] + xs[:$k] if len(xs) > $k else []"), k=(1, 2, 3, 4),
    ),
    _family(
        "spread", "xs",
        ("Return the largest minus the smallest of xs, or 0 if empty.", "Compute the range of xs, or 0.", "Return the spread of xs, 0 if it is empty.", "Give the gap from minimum to maximum of xs, or 0.", "How far apart are the extremes of xs? Return 0 if empty."),
        ("return max(xs) - min(xs) if xs else 0",), ("return max(xs) - min(xs)", "return max(xs) - min(xs) if xs else -1", "return abs(xs[-1] - xs[0]) if xs else 0"),
    ),
    _family(
        "distinct", "xs",
        ("Return the sorted distinct numbers of xs.", "Sort xs and drop repeats.", "List xs in order without duplicates.", "Sort the different values of xs.", "Which values does xs have? Sort them."),
        ("return sorted(set(xs))",), ("return sorted(xs)", "return list(dict.fromkeys(xs))", "return sorted(set(xs[1:]))"),
    ),
    _family(
        "shift", "xs",
        ("Add $k to each of xs.", "Return xs with $k added to each item.", "Increase all of xs by $k.", "Raise every item of xs by $k.", "What is xs with each item $k higher?"),
        ("return [x + $k for x in xs]",), ("return [x + $k for x in xs[1:]]", "return [x + $near for x in xs]", "return [x + $k for x in xs if x > 0]"), k=DIGITS,
    ),
    _family(
        "shared", "xs, ys",
        ("Return the items of xs that are in ys.", "List what xs shares with ys.", "Keep items of xs found in ys.", "Pick from xs what ys has too.", "Which items of xs are also in ys?"),
        ("return [x for x in xs if x in ys]",), ("return sorted(set(xs) & set(ys))", "return [x for x in xs if x in ys[1:]]", "return [x for x in ys if x in xs]"),
    ),
    _family(
        "pairwise", "xs, ys",
        ("Add xs and ys item by item.", "Return the pairwise sums of xs and ys.", "Sum matching items of xs and ys.", "List the sums of items of xs and ys at the same place.", "What are the sums of xs and ys place by place?"),
        ("return [x + y for x, y in zip(xs, ys)]",), ("return [x + y for x, y in zip(xs, ys[1:])]", "return [xs[i] + ys[i] for i in range(len(xs))]", "return [x + y for x, y in zip(xs[1:], ys[1:])]"),
    ),
    _family(
        "rising", "xs",
        ("Check whether xs is sorted.", "Return True if xs is in rising order.", "Decide if xs never falls.", "Tell whether each item of xs is at least the one before.", "Are the items of xs in order?"),
        ("return xs == sorted(xs)",), ("return xs == sorted(set(xs))", "return xs[0] <= xs[-1]", "return xs[1:] == sorted(xs[1:])"),
    ),
]  # fmt: skip

DICTS = [
    _family(
        "values", "d",
        ("Return the sum of the values of d.", "Add up the values of d.", "Compute the total of the values in d.", "Sum all values of d.", "What do the values of d add up to?"),
        ("return sum(d.values())",), ("return sum(set(d.values()))", "return sum(v for v in d.values() if v > 0)", "return sum(d.values()) if d else -1"),
    ),
    _family(
        "values_over", "d",
        ("Count the values of d greater than $k.", "Return how many values of d are over $k.", "Return the number of values above $k in d.", "Tell how many values of d exceed $k.", "How many values in d are more than $k?"),
        ("return sum(1 for v in d.values() if v > $k)",), ("return sum(1 for v in d.values() if v >= $k)", "return sum(1 for v in d.values() if v > $near)", "return sum(1 for v in set(d.values()) if v > $k)"), k=FEW,
    ),
    _family(
        "keys_from", "d",
        ("Return the sorted keys of d whose value is at least $k.", "List in order the keys of d with a value of $k or more.", "Sort the keys of d that map to $k or more.", "Give in order the keys of d whose value is not below $k.", "Which keys of d have at least $k? Sort them."),
        ("return sorted(a for a in d if d[a] >= $k)",), ("return sorted(a for a in d if d[a] > $k)", "return [a for a in d if d[a] >= $k]", "return sorted(a for a in d if d[a] >= $near)"), k=FEW,
    ),
    _family(
        "lookup", "d",
        ("Return the value of $c in d, or $k if missing.", "Get $c from d, or $k if there is none.", "Look up $c in d, $k by default.", "Give what d holds for $c, or $k.", "What does d have for $c? Return $k if nothing."),
        ("return d.get('$c', $k)",), ("return d['$c']", "return d.get('$c')", "return d.get('$c') or $k", "return d.get('$c', $k) if len(d) > 1 else $k"), c=tuple("abc"), k=(1, 2, 3),
    ),
    _family(
        "best_value", "d",
        ("Return the largest value of d, or 0 if empty.", "Find the maximum value of d, or 0.", "Return the biggest value in d, 0 if it is empty.", "Give the greatest value of d, or 0 for none.", "Which value of d is the largest? Return 0 if it is empty."),
        ("return max(d.values(), default=0)",), ("return max(d.values())", "return max(d.values(), default=-1)", "return max(0, *d.values())"),
    ),
]  # fmt: skip


def single_families() -> list[Family]:
    """Families that share no template with another one."""
    return [*WORDS, *NUMBERS, *LISTS, *DICTS]
