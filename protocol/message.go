package protocol

// A Message is one of this package's messages. Machines use the concrete types; this is for code
// that treats all alike, such as tools and tests.
type Message interface {
	// Append appends the message to b. It allocates only what b lacks.
	Append(b []byte) []byte
	// Decode replaces the message by what b holds, or returns a *DecodeError. A nil lim stands
	// for DefaultLimits.
	Decode(b []byte, lim *Limits) error
}

//go:generate go run ../tools/codecgen
//go:generate go test . -run TestFieldsInTheDocument -rewrite
