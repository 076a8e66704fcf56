// Package door stands between the network and a server: it accepts connections, and bounds what those of nobody known
// can take.
//
// A connection costs a file, a goroutine and a few kilobytes before anybody knows who is behind it. So there are at
// most Config.Total of them, at most Config.PerAddress of one address, and at most Config.Strangers of one address that
// have not yet said anything that makes sense ([Guest.Known]); each of those has Config.Patience to do so. At a bound
// the door does not turn away who comes next, because that may be the honest one: it closes the stranger that has
// waited longest, one that has shaken hands and no more, or the connection that has been idle longest of the address
// that has most. Who is at work ([Guest.Work]) is let be.
//
// Files are never used up: Total is what the process may have open less what its other parts need ([Room]). If they are
// nevertheless, by others, the door waits a little between its attempts, and turns connections away by a file kept back
// for that.
//
// Bytes that guests send are bounded by a [Purse] with a share for each address.
//
// An address is an IPv4 address, or the /64 of an IPv6 one: one host has as many addresses of that as it likes.
package door
