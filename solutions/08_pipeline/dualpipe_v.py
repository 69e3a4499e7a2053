"""DualPipeV: stages placed like a V, with forwards of one half next to backwards of the other.

Notebook 08. Each rank has two chunks: rank r has stage r (chunk 0) and stage 2p-1-r (chunk 1). A
micro-batch goes down the ranks and up again, so rank 0 has the first and the last stage, and rank
p-1 has two neighbouring stages. The pipeline fills from both ends at once. In the middle, a rank
alternates between a forward of one chunk and a backward of the other. The two do not depend on each
other, so a machine can run them at the same time, and hide the messages of one behind the products
of the other. DeepSeek-V3 uses DualPipe for that reason; DualPipeV is its folded form.

Actions: `2F5` is stage 2, forward, micro-batch 5; `2B5` is its whole backward; `2I5` and `2W5` are
the halves of the backward, the gradients of the input and of the weights. `play` writes out the
actions, so you only write the phases: patterns, and how often each is repeated. For rank 1 of p =
2, m = 4, these are the words of its phases, and the actions that `play` makes of them:

    F0  F1  F0  F1  F0  B1  F1  B0  F0  B1  F1  B0  B1  B0  I1  I0  W   W
    1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3

These are the phases of rank r. `late` = p-1-r ranks are further down the V than rank r.
1. Forwards of chunk 0 alone, 2·late of them: until the first micro-batch is back.
2. Forwards of chunk 0 and chunk 1 in turn, r+1 of each: until the first gradient arrives.
3. `late` times: the input half of a backward of chunk 1, for which another rank waits; a weight
   half; a forward of chunk 1.
4. The long middle: forward of chunk 0, backward of chunk 1, forward of chunk 1, backward of chunk
   0, repeated until chunk 0 has no forwards left (it has m in all).
5. `late` times: backward of chunk 1, forward of chunk 1, backward of chunk 0. After that no
   forwards are left.
6. r+1 more backwards of each chunk, chunk 1 and chunk 0 in turn. Of these 2(r+1), the first r+1 are
   whole; of the others only the input half runs, and the weight half is left for later. If r+1 is
   odd, the middle pair has one of each kind.
7. `late` times: a weight half that is left, and the input half of a backward of chunk 0.
8. The r+1 weight halves that are still left.

The schedule is simulated, with F, I and W of a stage taking 1 each, and B 2. It is checked that
- each micro-batch goes through each stage with one F, and one B or one I and one W, and no ranks
  wait for each other in a circle;
- no rank waits longer than p-1, so the whole takes at most 6m + p-1 (in 1F1B, whose stages are
  twice as large, a rank waits 6(p-1));
- no rank holds the activations of more than 2p+1 forwards at once, both chunks counted together:
  about p micro-batches, as rank 0 of 1F1B does;
- rank r has at least 2(m-2p+r+1) pairs of an F of one chunk next to a B or I of the other.

You may return any schedule that satisfies these, with or without `play`.
"""


def play(phases: list[tuple[str, int]], stages: tuple[int, int]) -> list[str]:
    """Writes out the actions of one rank.

    Args:
        phases: words and how often they are repeated, like `("F0 B1", 3)`. F0 is the next forward
            of chunk 0; B1 and I1 are the next backward of chunk 1, whole or its input half; W is
            the oldest weight half whose I has already run.
        stages: the stage of chunk 0 and that of chunk 1.
    """
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
    """Lists the actions of one rank.

    Args:
        rank: 0 to p - 1; it has the stages rank and 2p - 1 - rank.
        p: ranks of the pipeline, 1 or more.
        m: micro-batches, 2p or more.

    Returns:
        Actions like `0F1`, in the order in which the rank runs them.
    """
    # BEGIN SOLUTION
    late = p - 1 - rank
    half, odd = divmod(rank + 1, 2)
    phases = [
        ("F0", 2 * late),
        ("F0 F1", rank + 1),
        ("I1 W F1", late),
        ("F0 B1 F1 B0", m - 2 * late - rank - 1),
        ("B1 F1 B0", late),
        ("B1 B0", half),
        ("B1 I0", odd),
        ("I1 I0", half),
        ("W I0", late),
        ("W", rank + 1),
    ]
    return play(phases, (rank, 2 * p - 1 - rank))
    # END SOLUTION
