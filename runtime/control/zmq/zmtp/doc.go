// Package zmtp is the part of ZeroMQ's wire protocol (ZMTP 3.0 and 3.1, mechanism NULL) that servers and clients need:
// greetings, handshakes, and messages of frames.
//
// It trusts no byte. What a peer says of a length is believed as far as its bytes arrive; what a message may hold is
// bounded as a whole, however it is cut into frames; and what is beyond is skipped, held by nobody, so that whoever
// sent it can be told. libzmq bounds one frame, and not the message that is made of them.
package zmtp
