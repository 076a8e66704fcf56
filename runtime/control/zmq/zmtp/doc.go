// Package zmtp implements the part of ZeroMQ's wire protocol (ZMTP 3.0 and 3.1, mechanism NULL) that control messages
// need: greetings, handshakes, and messages of frames.
//
// The package trusts no byte of the peer. Memory for a claimed length is allocated only as the bytes arrive. The size
// of a message is bounded as a whole, regardless of the number of frames; libzmq bounds a single frame only, and not a
// message of many frames. The part of a message beyond the bound is skipped without being held, so that the peer can
// be sent an error in reply.
//
//	pings, err := zmtp.Handshake(conn, send, "ROUTER", []string{"REQ", "DEALER"})
//	r := zmtp.Reader{R: conn, Limits: limits}
//	for {
//		message, err := r.Next() // message.Fault says whether it exceeded the limits
//	}
package zmtp
