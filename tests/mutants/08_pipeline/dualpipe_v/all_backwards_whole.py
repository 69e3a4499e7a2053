"""mutant: takes too long, which backwards are whole"""


def play(phases: list[tuple[str, int]], stages: tuple[int, int]) -> list[str]:
    plan: list[str] = []
    waiting: list[str] = []
    done = {"F0": 0, "F1": 0, "back0": 0, "back1": 0}
    for word in (word for words, times in phases for word in words.split() * times):
        if word == "W":
            plan.append(waiting.pop(0))
            continue
        kind, chunk = word[0], word[1]
        way = ("F" if kind == "F" else "back") + chunk
        plan.append(f"{stages[int(chunk)]}{kind}{done[way]}")
        if kind == "I":
            waiting.append(f"{stages[int(chunk)]}W{done[way]}")
        done[way] += 1
    return plan


def dualpipe_v(rank: int, p: int, m: int) -> list[str]:
    late = p - 1 - rank
    half, odd = divmod(rank + 1, 2)
    phases = [
        ("F0", 2 * late),
        ("F0 F1", rank + 1),
        ("B1 F1", late),
        ("F0 B1 F1 B0", m - 2 * late - rank - 1),
        ("B1 F1 B0", late),
        ("B1 B0", half),
        ("B1 B0", odd),
        ("B1 B0", half),
        ("B0", late),
    ]
    return play(phases, (rank, 2 * p - 1 - rank))
