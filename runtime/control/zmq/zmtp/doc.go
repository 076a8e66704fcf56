// Package zmtp implements the part of ZeroMQ's wire protocol (ZMTP 3.0 and 3.1, mechanism NULL) that control messages
// need: greetings, handshakes, and messages of frames.
//
// It trusts no byte of the peer. Memory for a claimed length is allocated only as its bytes arrive. The size of a
// message is bounded as a whole, however it is cut into frames; libzmq bounds one frame only, and not the message that
// is made of many. The part of a message beyond the bound is skipped without being held, so that the peer can be sent
// an error in reply.
//
//	pings, err := zmtp.Handshake(conn, send, "ROUTER", []string{"REQ", "DEALER"})
//	r := zmtp.Reader{R: conn, Limits: limits}
//	for {
//		message, err := r.Next() // message.Fault says whether it exceeded the limits
//	}
package zmtp
