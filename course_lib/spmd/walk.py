"""The walk through what all ranks did: each operation's types, held against the ranks' values.

Notebook: 06 Tensor parallel (types of a distributed tensor).
Source: abstract interpretation (Cousot and Cousot, 1977) with types for values, beside a real run.
Costs: a few microseconds an operation and rank.
The production version checks types alone; here the ranks' values are there to contradict them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from course_lib.spmd import calls, rules
from course_lib.spmd import operations as ops
from course_lib.spmd.aligned import Record, near
from course_lib.spmd.findings import Findings
from course_lib.spmd.pieces import merged, own_piece, sliced
from course_lib.spmd.state import State
from course_lib.spmd.types import Axis, P, R, Type, V, Value


class Walk:
    """One walk through the records.

    Args:
        records: of all ranks.
        axes: of the mesh.
    """

    def __init__(self, records: Sequence[Record], axes: list[Axis]) -> None:
        self.records, self.axes = records, axes
        self.state = State(records)
        self.findings = Findings(axes)
        self.parents: dict[int, tuple[Value, ...]] = {}
        self.sent: list[set[int]] = [set() for _ in axes]
        self.kept: list[Value] = []  # so that no id stands for two of them

    # --- steps -----------------------------------------------------------------------------------
    def step(self, moment: list[Record | None]) -> None:
        """One operation of all ranks, or of some."""
        some = [call for call in moment if call is not None]
        line = self._line(some)
        if len(some) < len(moment):
            self._alone(moment, line)
        elif some[0]["op"] == "seen":
            self._seen(some, line)
        elif some[0]["op"].startswith("comm."):
            self._collective(some, line)
        else:
            self._local(some, line)

    def _line(self, some: list[Record]) -> str:
        path, line = some[0]["line"]
        name = path.replace("\\", "/").rpartition("/")[2].removeprefix("Cell ")
        same = path == self.records[0]["program"]
        return f"line {line}" if same else f"{name}, line {line}"

    def _alone(self, moment: list[Record | None], line: str) -> None:
        """Some ranks do what others do not: of what they make nothing is known, except of copies.

        Autograd, for one, takes a gradient over or copies it, as it happens to be held elsewhere.
        """
        unknown = self._keep(Value((V,) * len(self.axes), "on some ranks", line, sure=False))
        for rank, call in enumerate(moment):
            if call is not None:
                is_copy = call["op"].rstrip("_") in ops.COPIES
                source = self.state.get(rank, call["in"][-1]) if is_copy else None
                for number in call["out"]:
                    self.state.set(rank, number, source or unknown, wrote=number in call["wrote"])

    def _seen(self, some: list[Record], line: str) -> None:
        """A tensor from outside, or a collective's result that has arrived."""
        numbers = [call["out"][0] for call in some]
        known = [self.state.get(rank, number) for rank, number in enumerate(numbers)]
        value = known[0]
        if value is None or any(other is not value for other in known):
            value = Value((V,) * len(self.axes), "given", line)
        self._store(some, 0, self._checked(value, some, 0))

    def _local(self, some: list[Record], line: str) -> None:
        read = [self._input(some, index) for index in range(len(some[0]["in"]))]
        call = self._call(some, read)
        founds = [self._rule(call, some, read, axis) for axis in range(len(self.axes))]
        for axis, found in enumerate(founds):
            if found.mistake:
                self.findings.add(found.mistake, read, op=call.name, axis=axis, line=line)
        piece = own_piece(call, some, read)
        for index in range(len(some[0]["out"])):
            types = tuple(found.outs[index] for found in founds)
            value = self._made(call, read, types, line)
            if piece is not None:
                value = replace(value, piece=piece[index])
            value = replace(value, added=self._added(read, founds, line))
            value = self._checked(value, some, index)
            self._updates(some, index, value, read, line)
            self._store(some, index, value, read if call.name in ops.LINEAR_PATH else [])

    def _made(
        self, call: rules.Call, read: list[Value], types: tuple[Type, ...], line: str
    ) -> Value:
        """The value that an operation makes, without where it was cut and what was added."""
        zero = call.name in ops.FACTORIES_OF_ZEROS
        zero |= call.name in ops.LINEAR_PATH and bool(read) and read[-1].zero
        if call.name in ops.SAME_TENSOR and read:
            made, line = read[0].made, read[0].line
        else:
            made = call.name
        shared = self._shared(call, read)
        sure = any(value.sure for value in read)
        summed = frozenset[int]()
        if call.name in {*ops.LINEAR_PATH, *ops.PRODUCTS} and read:
            summed = read[-1 if call.name == "copy" else 0].summed
        return Value(types, made, line, sure, zero, shared, summed)

    def _shared(self, call: rules.Call, read: list[Value]) -> frozenset[int]:
        """The axes on whose size the result, or a factor of it, was divided."""
        if not read:
            return frozenset()
        given = [value.shared for value in read]
        if call.name in {*ops.ADDS, *ops.JOINS}:
            return frozenset.intersection(*given)
        linear = {*ops.PRODUCTS, *ops.MATRICES, *ops.LINEAR_PATH, *ops.BACKWARDS}
        if call.name in linear | ops.NORM_BACKWARDS:
            return frozenset.union(*given) | self._divided(call)
        return frozenset()

    def _divided(self, call: rules.Call) -> frozenset[int]:
        """The axes by whose size an operation divides."""
        number = call.args[1] if len(call.args) > 1 else None
        if call.name not in ("mul", "div") or not isinstance(number, int | float) or not number:
            return frozenset()
        by = number if call.name == "div" else 1 / number
        return frozenset(n for n, axis in enumerate(self.axes) if abs(axis.size - by) < 1e-6)

    def _added(self, read: list[Value], founds: list[rules.Found], line: str) -> tuple[str, ...]:
        """Where a replicated summand went in, here or before."""
        before = [value.added for value in read if value.added]
        return tuple(
            line if found.added else next((each[n] for each in before if each[n]), "")
            if P in found.outs else ""
            for n, found in enumerate(founds)
        )  # fmt: skip

    def _rule(
        self, call: rules.Call, some: list[Record], read: list[Value], axis: int
    ) -> rules.Found:
        cut = sliced(call, some, read, axis, self.axes[axis])
        if cut is not None:
            return rules.Found(cut)
        alike = self.axes[axis].holds([repr(each["args"]) for each in some])
        return rules.local_rule(replace(call, alike=alike), [value.types[axis] for value in read])

    def _collective(self, some: list[Record], line: str) -> None:
        value = self._input(some, 0)
        op, reduction = some[0]["op"].removeprefix("comm."), some[0]["reduction"]
        groups = tuple(tuple(call["group"]) for call in some)
        types = []
        for number, axis in enumerate(self.axes):
            how = calls.relation(axis, groups)
            found = calls.collective_rule(op, reduction, value.types[number], how)
            if how in ("own", "covers"):
                self._mark_sent(number, value)
                self._judge_sum(found, value, number, op, reduction, line)
            elif found.mistake:
                self.findings.add(found.mistake, [value], op=op, axis=number, line=line)
            types.append(found.outs[0])
        if some[0]["in"] == some[0]["out"] and op == "reduce_scatter":  # in a chunk of it alone
            types = [V if type_.letter == "S" else type_ for type_ in types]
        over = [n for n, axis in enumerate(self.axes) if calls.relation(axis, groups) != "across"]
        made = Value(tuple(types), f"{op} on {some[0]['axis']}", line, value.sure, value.zero,
                     summed=value.summed.union(over))  # fmt: skip
        self._store(some, 0, made)

    def _judge_sum(
        self, found: rules.Found, value: Value, axis: int, op: str, reduction: str, line: str
    ) -> None:
        """A sum over an axis of what has it already, or of what it has been added to."""
        if value.zero or reduction != "sum":
            return
        if found.mistake == "pieces":
            self.findings.add("pieces", [value], op=op, axis=axis, line=line)
        if found.mistake == "counted" and value.sure and axis not in value.shared:
            self.findings.add("counted", [value], op=op, axis=axis, line=line)
        if where := value.added[axis] if value.added else "":
            self.findings.add("added", [value], op=op, axis=axis, line=line, where=where)

    def _mark_sent(self, axis: int, value: Value) -> None:
        todo = [value]
        while todo:
            now = todo.pop()
            if id(now) not in self.sent[axis]:
                self.sent[axis].add(id(now))
                todo += self.parents.get(id(now), ())

    # --- what the parameters say -----------------------------------------------------------------
    def _updates(
        self, some: list[Record], index: int, value: Value, read: list[Value], line: str
    ) -> None:
        """A step that makes replicas differ; the first that it read is the parameter before it."""
        numbers = [call["grads"][0] for call in some if call["grads"]]
        if index or not read or len(numbers) < len(some):
            return
        before = read[0]
        grads = [self.state.get(rank, number) for rank, number in enumerate(numbers)]
        grad = grads[0] if all(each is grads[0] for each in grads) else None
        for axis, type_ in enumerate(value.types):
            held = before.types[axis]
            if held == R != type_:
                self.judge_gradient("update", before, grad or value, axis, line, some[0])
            elif held.letter in "SV" and grad and grad.types[axis] == R and axis in grad.summed:
                name = self._name(0, some[0]["wrote"][0])
                self.findings.add("start", [grad], op=name, axis=axis, line=line)

    def judge_gradient(
        self, kind: str, held: Value, grad: Value, axis: int, line: str, call: Record | str
    ) -> None:
        """A parameter that all ranks have, and its gradient, which they must have, too.

        A constant may be anybody's own, unless its gradient says that it is a summand.

        Args:
            kind: `gradient` or `update`.
            held: the parameter, before the step.
            grad: its gradient.
            axis: number of the axis.
            line: of the step, or of the backward.
            call: the operation that writes the parameter, or the parameter's name.
        """
        partial = grad.types[axis] == P
        if grad.types[axis] == R or not (held.sure or partial):
            return
        name = call if isinstance(call, str) else self._name(0, call["wrote"][0])
        self.findings.add(kind, [grad], op=name, axis=axis, line=line, where=grad.line)

    def _name(self, rank: int, number: int) -> str:
        names = self.records[rank]["names"]
        storage = self.records[rank]["tensors"][number]["storage"]
        tensors = self.records[rank]["tensors"]
        same = (name for name, n in names.items() if tensors[n]["storage"] == storage)
        return next((name for name, n in names.items() if n == number), next(same, "a parameter"))

    # --- values ----------------------------------------------------------------------------------
    def _input(self, some: list[Record], index: int) -> Value:
        """What the ranks read at one place; not the same tensor everywhere, perhaps."""
        numbers = [call["in"][index] for call in some]
        self.state.place(numbers, self.axes)
        found = [self.state.get(rank, number) for rank, number in enumerate(numbers)]
        nothing = Value((V,) * len(self.axes), "given", sure=False)
        values = [value or nothing for value in found]
        if all(value is values[0] for value in values):
            return values[0]
        made = self._keep(merged(values, self.axes))
        for axis, type_ in enumerate(made.types):
            if type_ == V and all(value.types[axis] == P and value.piece for value in values):
                self.findings.add("cut", values[:1], op="", axis=axis, line=self._line(some))
        return made

    def _call(self, some: list[Record], read: list[Value]) -> rules.Call:
        first, tensors = some[0], self.records[0]["tensors"]
        return rules.Call(
            first["op"],
            [tensors[number]["shape"] for number in first["in"]],
            [tensors[number]["shape"] for number in first["out"]],
            first["args"],
            first["slots"],
            zeros=[
                value.zero and not trained
                for value, trained in zip(read, first["trained"], strict=True)
            ],
        )

    def _checked(self, value: Value, some: list[Record], index: int) -> Value:
        """The value with its claims held against the ranks' checksums.

        What is claimed to be replicated and is not (a random operation) is not known; what is not
        known and agrees to the bit is replicated, for sure unless it may be chance.
        """
        sums = [call["sums"][index] for call in some]
        tensor = self.records[0]["tensors"][some[0]["out"][index]]
        types, sure = [], value.sure
        for type_, axis in zip(value.types, self.axes, strict=True):
            agree = axis.holds([each[0] for each in sums])
            close = agree or near(sums, axis, 1e-12 if tensor["fine"] else 1e-6)
            if type_ == R and not close:
                type_ = V
            elif type_ == V and agree:
                type_, sure = R, False
            elif type_ == P and close and not sums[0][1]:
                type_ = R  # what was pending has cancelled
            types.append(type_)
        is_number = all(size == 1 for size in tensor["shape"])
        return replace(value, types=tuple(types), sure=sure if is_number else not sums[0][1])

    def _store(
        self, some: list[Record], index: int, value: Value, parents: Sequence[Value] = ()
    ) -> None:
        self._keep(value)
        self.parents[id(value)] = tuple(parents)
        numbers = [call["out"][index] for call in some]
        self.state.place(numbers, self.axes)
        for rank, (call, number) in enumerate(zip(some, numbers, strict=True)):
            self.state.set(rank, number, value, wrote=number in call["wrote"])

    def _keep(self, value: Value) -> Value:
        self.kept.append(value)
        return value
