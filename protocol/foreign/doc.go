// Package foreign writes messages as another encoder of msgpack would: the same values, in other bytes.
//
// msgpack leaves an encoder many choices. It may write a number, a length or a count wider than it need be, a number
// that is not negative in a signed form, the fields of a map in any order, and fields that the reader does not know.
// A reader that takes only what one encoder writes works until it meets another one. So every decoder of package
// protocol reads everything that [Append] makes of a message as that message, and refuses everything that [Repeat]
// makes of it: what a field that is given twice means, readers disagree about.
//
// Text is never written as bytes, nor bytes as text: to msgpack these are different values.
//
// The simulator has peers whose encoders are of this kind, and fuzz targets begin with what they write. The package
// knows no message: it is for tests, and for tools that want bytes to try on a reader.
package foreign
