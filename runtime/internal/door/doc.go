// Package door accepts connections for a server, and limits what connections of unknown peers can take.
//
// A connection costs a file, a goroutine and a few kilobytes before anybody knows which peer opened it. So a [Door]
// admits at most Config.Total connections, at most Config.PerAddress of one address, and of one address at most
// Config.Strangers that have not yet sent anything that makes sense ([Conn.MarkKnown]). Each of these strangers has
// Config.Patience to do so. At a limit the door does not turn away the next connection, because that may be the
// honest one. Instead it closes the stranger that has waited longest, or else a connection that has completed a
// handshake and nothing more, or else the connection that has been idle longest of the address that has most. A
// connection that is at work ([Conn.AddWork]) is never closed for another one.
//
// The door never uses up the files of the process: Total should be what the process may open less what its other
// parts need ([FileLimit]). If others use up the files nevertheless, the door waits a little between its attempts,
// and turns connections away with the help of a file that it holds in reserve.
//
// A [ByteBudget] limits the bytes that connections may send, with a share for each address.
//
// An address is an IPv4 address, or the /64 network of an IPv6 address, because one host can have any number of
// addresses in such a network.
//
// Example:
//
//	d := door.New(door.Config{Total: 1000, PerAddress: 100, Strangers: 20, Patience: 5 * time.Second, Log: log})
//	d.Serve(listener, "control", func(c *door.Conn) error {
//		if err := handshake(c); err != nil {
//			return err // The connection is closed and the error logged.
//		}
//		c.MarkKnown()
//		return serve(c)
//	})
//	defer d.Close(ctx)
package door
