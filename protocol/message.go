package protocol

// A Message is any message of this package. State machines use the concrete types; Message is for code that treats all
// messages alike, for example tools and tests.
type Message interface {
	// Append appends the message to b. It allocates only if the capacity of b is too small.
	Append(b []byte) []byte
	// Decode replaces the message by the message in b, or returns a *DecodeError. A nil lim stands for DefaultLimits.
	Decode(b []byte, lim *Limits) error
}

//go:generate go run ../tools/codecgen
//go:generate go test . -run TestFieldsInTheDocument -rewrite
