// Package directory decides what a directory knows: which worker of which instance has which chunk, as they report it,
// and whom to ask for a prefix. It knows no message, no socket and no format. Facts come in, one call each, and answers
// go out as values; whoever speaks with workers translates both.
//
// What it knows are hints. An answer may be wrong by what is under way, was lost or was left out at a bound, and costs
// who believes it a miss. So nothing here waits for anybody, and a directory that was restarted knows nothing and is
// told again.
//
// A caller may rely on this:
//
//   - What a worker registered for is gone when it registers again, is deregistered or was silent for too long: for all
//     who ask from that step on, though its chunks are swept away later.
//   - Operations of a location count from sequence 0 after a registration. Anything else before that one is of an
//     earlier incarnation, or there is a gap: it is not believed. A gap later on, or a sync that did not come to its
//     end, has the worker asked for a full sync by the answer to its next heartbeat for which there is a place. So as
//     soon as nothing is lost any more, what is known becomes what is so.
//   - What names an incarnation is believed of that one only. A worker that names none can be mistaken for the one
//     before it, where that one's last facts come late; the next full sync ends that.
//   - What a location told before a gap fades: it is believed for a while only, unless a full sync comes.
//   - A full sync changes nothing that is answered before its end, and then all at once.
//   - Time is this machine's. No worker's clock counts.
//   - A step does a bounded amount of work, and there is a bound on everything that facts can make grow, with a code
//     for who comes upon it. No instance takes more chunks or syncs than it leaves to others.
package directory
