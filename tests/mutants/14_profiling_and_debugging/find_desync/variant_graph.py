"""variant: the ends and circles are searched along the edges of who waits for whom"""

from collections import Counter, namedtuple

Finding = namedtuple("Finding", "kind group seq ranks")


def difference(made):
    """What differs in one call."""
    for kind in ("op", "dtype", "shape"):
        votes = Counter(record[kind] for record in made.values())
        if len(votes) == 1:
            continue
        most = max(votes.values())
        usual = made[min(rank for rank in made if votes[made[rank][kind]] == most)][kind]
        return kind, tuple(rank for rank in sorted(made) if made[rank][kind] != usual)


def lacking(group, seq, logs):
    """Who has not begun a call."""
    begun = {log["rank"]: log["made"].get(group, 0) for log in logs}
    return {rank for rank in group if begun[rank] < seq + 1}


def never_coming(logs):
    """From those that ended, and from each rank that can reach itself, backwards."""
    edges = {log["rank"]: set() for log in logs}
    for log in logs:
        if log["state"] == "running":
            for record in log["records"]:
                if record["state"] == "waiting":
                    edges[log["rank"]] |= lacking(record["group"], record["seq"], logs)

    def reach(rank):
        seen, todo = set(), list(edges[rank])
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += edges[at]
        return seen

    roots = {log["rank"] for log in logs if log["state"] != "running"}
    roots |= {rank for rank in edges if rank in reach(rank)}
    return roots | {rank for rank in edges if reach(rank) & roots}


def find_desync(logs):
    """Three passes, one for each sort."""
    records = sorted((r for log in logs for r in log["records"]), key=lambda r: r["begin"])
    order = list(dict.fromkeys((r["group"], r["seq"]) for r in records))
    for group, seq in order:
        made = {
            log["rank"]: r
            for log in logs
            for r in log["records"]
            if (r["group"], r["seq"]) == (group, seq)
        }
        found = difference(made)
        if found:
            return Finding(found[0], group, seq, found[1])
    ended = {log["rank"] for log in logs if log["state"] != "running"}
    for gone in (ended, never_coming(logs)):
        for group, seq in order:
            ranks = lacking(group, seq, logs) & gone
            if ranks:
                return Finding("missing", group, seq, tuple(sorted(ranks)))
    return None
