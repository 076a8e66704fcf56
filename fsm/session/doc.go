// Package session is what an agent knows of the engines that are attached to it: which calls of theirs are open, and
// what they hold. It carries nothing out. A driver begins calls when it says so, and tells it how they ended.
//
// # What an engine holds
//
// A call may bring something: pages, what is shared, a prefill. It is the engine's under the number of the call until
// the engine gives it back, or until the agent knows that the process is gone. No time ends it, and no connection: an
// engine whose connection was cut may be writing into its pages all the while, and so may one that is frozen.
//
//	attached ----cut----> parted ----attach again, the same process----> attached
//	    |                   |
//	    +-----detach or exit of the process-----> leaving: calls are aborted, what is held is given back
//
// What is given back waits until no call uses it: memory that a put still reads is released when that has returned.
//
// # What is lost on the way
//
// An answer is kept until the engine says that it has it (done), or says when it attaches again that it does not wait
// for it (not among open). So a call is done once, whatever is cut: one that is known is not begun again, and has its
// answer again. A call that the engine does not wait for any more is let go: what it brings is given back at once.
//
// # What an engine may say
//
// Its word changes nothing but what is its own. It names what it holds by its own numbers; what it does not hold is
// NotFound. Who breaks the protocol loses the connection, and can attach again; it never loses its pages by that.
package session
