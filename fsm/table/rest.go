package table

// Rest says what may be in a table when nothing is open: no command, no message, no transfer, nobody's pages. Whoever
// looks for what was left behind asks by it.
type Rest uint8

// Kinds of rest.
const (
	Empty   Rest = iota // nothing
	Timed               // what is remembered until a time, with a deadline for each
	Bounded             // what is remembered until something else needs the room
	Ready               // chunks that somebody may come for
)

// Visit is told of one table: how many rows it has, and what may be in it at rest.
type Visit func(name string, rows int, rest Rest)
