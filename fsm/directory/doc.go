// Package directory is the state of a chunk directory: the directory records which worker of which serving instance
// holds which chunks of KV cache, and answers which peers to ask for the chunks of a prefix. The package knows no
// messages, no sockets and no wire format. The caller (package serve in production) translates each message of a
// worker into one method call, and each result into a reply.
//
// The records are hints. An answer may be wrong because a report is in flight, was lost or was left out at a limit;
// an error costs the requester a cache miss. Therefore the directory waits for nobody, and a directory that was
// restarted begins empty and is filled by new reports.
//
// Example:
//
//	d.Register(t0, a, addrA)                   // worker a of instance A registers
//	d.ApplyReport(t1, &Report{Sender: a, ...}) // chunks 1 and 2 were stored at a location
//	d.Lookup(t2, b, []uint64{1, 2, 3}, nil)    // instance B asks: A has the first 2 chunks
//	d.ConnectionLost(t3, a.Source)             // the worker will be dropped after Config.Disconnected
//	d.Advance(t4)                              // t4 ≥ t3 + Disconnected: lookups do not find A any more
//
// A caller may rely on the following:
//
//   - When a worker registers again, is deregistered, or has been silent for too long, everything that the worker
//     reported before disappears from all lookups in the same step. The rows are swept away in later steps.
//   - After a registration the operations of a location are numbered from sequence 0. If another sequence arrives
//     first, then the operation belongs to an earlier incarnation or operations are missing; the directory ignores
//     that sequence. After a later gap, or after a full sync that was not completed, the reply to the worker's next
//     heartbeat for which there is a sync slot asks the worker for a full sync. Therefore the records converge to the
//     truth as soon as nothing is lost any more.
//   - A fact that names an incarnation applies to that incarnation only. A worker that names none can be confused
//     with the previous incarnation if the last facts of that incarnation arrive late; the next full sync corrects
//     that.
//   - Records of a location from before a gap fade: the directory drops them after [Config.Fade], unless a full sync
//     replaces the records earlier.
//   - A worker belongs to the identity that its process proved (Sender.Principal), for as long as the directory knows the
//     worker. A fact about the worker that comes from another identity, or from none, is refused as Forbidden and changes
//     nothing. A worker whose process proved none belongs to the first one that registers it, or sends its heartbeat, and
//     proves an identity; what was reported before is dropped.
//   - A full sync changes no answer before the sync is complete, and then replaces all records of its location in one
//     step.
//   - All times are of this machine's clock. Clocks of workers are never used.
//   - Each step does a bounded amount of work. Everything that facts can enlarge has a limit, and a fact that meets a
//     limit is refused with a code. No network address takes more of the chunks, syncs or workers than remain free
//     for further addresses.
package directory
