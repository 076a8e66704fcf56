// Package foreign writes messages as another encoder of msgpack would write them: the same values, in other bytes.
//
// msgpack leaves an encoder many choices. An encoder may write a number, a length or a count in more bytes than
// necessary, a number that is not negative in a signed form, the fields of a map in any order, and fields that the
// reader does not know. A reader that accepts only the bytes of one encoder works until it meets another encoder.
// Therefore every decoder of package protocol must read everything that [Append] makes of a message as the same
// message. The decoders must refuse everything that [Repeat] makes of a message, because readers disagree about the
// meaning of a field that is given twice.
//
// Text is never written as bytes, nor bytes as text: for msgpack these are different values.
//
// Example: the simulator has peers with an encoder of this kind, and fuzz targets take the output of this package as
// seeds. The package knows no message and is for tests, and for tools that need bytes to try on a reader.
package foreign
