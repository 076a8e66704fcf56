package table

// Rest says which rows a table may hold when the machine is at rest: no command, message or transfer is open, and no
// page is granted, lent or in the hands of the engine. A check for leaked rows compares each table with its Rest.
type Rest uint8

// The kinds of rest.
const (
	Empty   Rest = iota // no rows
	Timed               // rows that are kept until a time, each with a deadline
	Bounded             // rows that are kept until their place is needed
	Ready               // chunks that a request may still read
)

// VisitFunc is called for a table with the number of its rows and the rows that it may hold at rest.
type VisitFunc func(name string, rows int, rest Rest)
