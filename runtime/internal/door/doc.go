// Package door accepts connections for a server, and limits what connections of unknown peers can take.
//
// A connection costs a file, a goroutine and a few kilobytes before anybody knows which peer opened it. So a [Door]
// admits at most Config.MaxTotal connections, at most Config.MaxPerAddress of the same address, and of the same
// address at most Config.MaxStrangers that have not yet sent anything that makes sense ([Conn.MarkKnown]). Each of
// these strangers has Config.HandshakeTimeout to do so. At a limit the door does not turn away the next connection,
// because that may be the honest connection. Instead the door closes the stranger that has waited longest, or else a
// connection that has completed a handshake and nothing more, or else the connection that has been idle longest of the
// address with the most connections. A connection with an operation in progress ([Conn.AddWork]) is never closed in
// favour of a new connection.
//
// The door never uses up the files of the process: MaxTotal should be the number of files that the process may open,
// less the files that the rest of the process needs ([FileLimit]). If the rest of the process uses up the files
// nevertheless, the door waits a little between attempts, and turns connections away with the help of a file that is
// held in reserve.
//
// A [ByteBudget] limits the bytes that connections may send, with a share for each address.
//
// An address is an IPv4 address, or the /64 network of an IPv6 address, because one host can have any number of
// addresses in such a network.
//
// Example:
//
//	d := door.New(door.Config{MaxTotal: 1000, MaxPerAddress: 100, MaxStrangers: 20, HandshakeTimeout: 5 * time.Second})
//	d.Serve(listener, "control", func(c *door.Conn) error {
//		if err := handshake(c); err != nil {
//			return err // The connection is closed and the error logged.
//		}
//		c.MarkKnown()
//		return serve(c)
//	})
//	defer d.Close(ctx)
package door
