// Package session is the state machine of the engines that are attached to an agent: which calls each engine has open,
// and what each engine holds. The machine carries nothing out itself. A driver passes messages and connection events to
// a [Machine], begins the calls that the machine returns, and reports how they ended.
//
// # What an engine holds
//
// A call may bring a holding: reserved pages, a share, or a prefill. The holding belongs to the engine under the number
// of the call until the engine gives it back, or until the agent knows that the engine's process is gone. Neither time
// nor the loss of a connection ends a holding: an engine with a cut connection may still be writing into its pages, and
// so may an engine that is frozen.
//
//	attached ----cut----> parted ----attach again, the same process----> attached
//	    |                   |
//	    +-----detach or exit of the process-----> leaving: calls are aborted, holdings are given back
//
// A holding that is given back is freed only when no call uses it: memory that a put still reads is released when that
// put has returned.
//
// # Replies that are lost
//
// An answer is kept until the engine says that it has received it (done), until the engine attaches again and does not
// list the call among its open calls, or until the session ends. Drain and a full session table end a parted session
// without holdings whose calls are over, and drop its answers; an engine that attaches again then gets a new session
// (Resumed is false). While the session lasts, a call is carried out once, however often the connection is cut: a call
// that is repeated is not begun again, and its answer is sent again. A call that the engine no longer waits for is
// abandoned: what it brings is given back at once.
//
// # Chunks that are shown
//
// While a fetch is in progress, the driver may lend chunks to the engine that has not copied them yet (ShowChunks): the
// engine gets a message with the pages and lengths, copies the chunks and replies. The ShowResult then tells the driver
// that the pages are free to change. If the connection is cut, the message is sent again after the engine has attached
// again.
//
// # Protection against engines
//
// An engine's messages change only what belongs to that engine. An engine names its holdings by its own numbers; an
// unknown number is answered with NotFound. An engine that breaks the protocol loses the connection and can attach
// again; the engine never loses its pages for that reason.
//
// # Example
//
//	HandleAttach                            Send: the session's number, and the file of the memory
//	HandleMessage: call 7, reserve          Begin 7
//	OnCallEnded 7, with memory              Send: answer 7; the engine now holds pages 7
//	HandleMessage: call 8, put of pages 7   Begin 8; pages 7 are in use
//	OnCallEnded 8, held                     Send: answer 8; a peer may still read the pages
//	HandleMessage: call 9, release pages 7  nothing: call 9 waits, because call 8 uses the pages
//	OnMemoryReturned 8                      Send: call 8 has returned; Begin 9
//	OnCallEnded 9                           Send: answer 9; the engine holds nothing
package session
