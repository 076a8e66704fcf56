// Package epochs is what planes of communicators have in common below the machines of fsm/communicator: the links that
// a plane opens, whose decisions a plane carries out by its library (Hands); the connection on which two planes agree
// about epochs; what proves that its other end is no more; and how a transfer is cut into batches. It knows no library.
package epochs
