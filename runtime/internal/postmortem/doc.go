// Package postmortem writes down what a rank was doing when an assertion failed in it: the assertion and its stack,
// the events and effects before it, the step that failed, and the machine's whole state.
//
// A report holds nothing by which anybody could speak for the rank or a peer: secrets are left out, and of bytes that
// are no text the length and the first four stand there, which is what logs show of a name too. Bodies of messages
// are cut the same way.
package postmortem
