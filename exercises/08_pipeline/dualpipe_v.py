"""DualPipeV: stages placed like a V, and forwards of one half beside backwards of the other.

Notebook 08. Each rank has two chunks: rank r the stages r (chunk 0) and 2p-1-r (chunk 1). A
micro-batch goes down the ranks and up again, so rank 0 has the first stage and the last one, and
rank p-1 two neighbours. The pipeline fills from both ends at once. In the middle a rank runs, in
turn, a forward of one chunk and a backward of the other; the two do not depend on each other, so a
machine can run them at the same time, and hide one's messages behind the other's products. That is
why DeepSeek-V3 uses it (its DualPipe, folded).

Actions: `2F5` is stage 2, forward, micro-batch 5; `2B5` its whole backward; `2I5` and `2W5` its
halves, gradients of the input and of the weights. `play` writes out actions from phases, so you
give the phases alone: patterns, and how often each is repeated. For rank 1 of p = 2, m = 4, the
words of its phases, and what `play` makes of them:

    F0  F1  F0  F1  F0  B1  F1  B0  F0  B1  F1  B0  B1  B0  I1  I0  W   W
    1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3

The phases of rank r, of which `late` = p-1-r ranks lie further down the V:
1. forwards of chunk 0 alone, 2·late of them: until the first micro-batch is back;
2. forwards of chunk 0 and chunk 1 in turn, r+1 of each: until the first gradient arrives;
3. `late` times: of a backward of chunk 1 the input half alone, which another rank waits for; a
   weight half; a forward of chunk 1;
4. the long middle: forward of chunk 0, backward of 1, forward of 1, backward of 0; until chunk 0
   has no forwards left (it has m in all);
5. `late` times: backward of chunk 1, forward of chunk 1, backward of chunk 0; then no forwards are
   left at all;
6. r+1 more backwards of each chunk, chunk 1 and chunk 0 in turn. Of these 2(r+1), the first r+1 are
   whole; of the others only the input half, whose weight halves are kept for the end. Mind the
   middle pair when r+1 is odd;
7. `late` times: a weight half that is left, and the input half of a backward of chunk 0;
8. the r+1 weight halves that are left then.

What is measured, on paper, with F, I and W of a stage taking 1 each, and B 2:
- each micro-batch passes each stage with one F, and one B or one I and W; no circle;
- no rank waits longer than p-1, so the whole takes 6m + p-1; in 1F1B, whose stages are twice as
  large, it waits 6(p-1);
- a rank holds at most 2p+1 forwards of a chunk: about p micro-batches, as rank 0 of 1F1B;
- at least 2(m-2p+r+1) times an F of one chunk stands beside a B or I of the other.

Free: any schedule that reaches these, with or without `play`.

Your answer may use nothing of `course_lib`.
"""


def play(phases: list[tuple[str, int]], stages: tuple[int, int]) -> list[str]:
    """Writes out the actions of one rank.

    Args:
        phases: words and how often they are repeated, like `("F0 B1", 3)`. F0 is the next forward
            of chunk 0; B1 or I1 the next backward of chunk 1, whole or its input half; W the oldest
            weight half whose I has been.
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
    """What one rank does.

    Args:
        rank: 0 to p - 1; it has the stages rank and 2p - 1 - rank.
        p: ranks of the pipeline, 1 or more.
        m: micro-batches, 2p or more.

    Returns:
        Actions like `0F1`, in the order the rank runs them.
    """
    raise NotImplementedError("dualpipe_v: write your answer here")
