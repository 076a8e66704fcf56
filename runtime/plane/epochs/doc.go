// Package epochs is what planes of communicators have in common, and feeds the machines of fsm/communicator: the links
// that a plane opens (Links), and those that peers open to it (Arrivals). What is decided a plane carries out by its
// library (Hands, TargetHands). Besides there is the connection on which two planes agree about epochs, what proves
// that its other end is no more, and how a transfer is cut into batches. It knows no library.
package epochs
