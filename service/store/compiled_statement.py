"""A statement that is compiled once and handed to the driver as it is.

Around each statement, SQLAlchemy keeps a session, a transaction, a context and a result. Where one
comes after long enough for the processor's caches to have forgotten all that code, as while texts
are classified between two uploads, this takes several times as long as the database does.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Delete, Dialect, Insert, Select, Update
from sqlalchemy.sql.compiler import SQLCompiler

Statement = Insert | Update | Delete | Select[Any]


class CompiledStatement:
    """A statement in the words of one database.

    Args:
        statement: Has a fixed number of parameters.
        dialect: Of a driver that counts parameters by their position.
        names: Of the values that it will be given each time, see :meth:`values`.
    """

    def __init__(self, statement: Statement, dialect: Dialect, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        compiled = statement.compile(dialect=dialect, column_keys=list(self.names))
        assert isinstance(compiled, SQLCompiler), "a statement, and no definition of a table"
        assert compiled.positiontup is not None, "parameters are told by their position"
        self.text = str(compiled)
        self.parameters = [
            (
                name,
                compiled.params[name],
                compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect),
            )
            for name in compiled.positiontup
        ]

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """The parameters as the driver takes them.

        Args:
            given: By the name of a column or parameter; those that the statement brings along are
                not among them.

        Raises:
            TypeError: They are others than it was compiled for.
        """
        if given.keys() != self.names:
            raise TypeError(f"given {sorted(given)}, but the statement takes {sorted(self.names)}")
        return [
            value if convert is None else convert(value)
            for name, fixed, convert in self.parameters
            for value in (given[name] if name in self.names else fixed,)
        ]
