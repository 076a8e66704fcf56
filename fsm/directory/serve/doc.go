// Package serve is the directory as a state machine with messages: it decodes the messages that workers send to
// LMCache's controller, passes the facts in them to package directory, and encodes the replies. All decisions about
// chunks and workers are made by package directory.
//
// The machine listens on three channels. Requests arrive on [effects.ChannelDirectory]: registrations, lookups, and
// the begin and status of full syncs. Messages without a reply arrive on [effects.ChannelFeed]: operations, batches
// and ends of full syncs, and deregistrations. Heartbeats arrive on [effects.ChannelHeartbeat], and are accepted on
// [effects.ChannelDirectory] as well. The machine opens no connection except to the log, and sends nothing to workers
// except replies.
//
// Example: a RegisterMsg arrives as an [effects.Received] on ChannelDirectory, with a Request number. In the same
// step the machine registers the worker, appends the message to the log for the replicas, and emits an
// [effects.Reply] with a RegisterRetMsg. Later a BatchedKVOperationMsg of the worker arrives on ChannelFeed; the
// machine records the operations and sends no reply.
//
// A caller may rely on the following, in addition to the properties of package directory:
//
//   - Each request is answered in the step that receives the message. A malformed, misdirected or refused request is
//     answered by an ErrorMsg, and a refused full sync by a FullSyncStartRetMsg. A refused message on the feed is
//     dropped. In both cases the machine emits an [effects.FactMalformed] with the reason. A refused message changes
//     nothing, except that a report with chunks beyond a limit is applied as far as the limits permit.
//   - The messages of a connection make at most as many workers known as the configuration permits for a source.
//   - The first holder in the reply to a lookup is read by LMCache's workers; further holders may follow. A miss has
//     the form of LMCache's reply, too.
//   - Each note of the directory is emitted as an [effects.FactDirectory].
//   - Time during which the process was stopped does not count as silence of a worker. The driver steps the machine
//     at every deadline, so that the machine knows when it was running.
//
// LMCache's workers send no heartbeats unless they are configured to do so, and send nothing while nothing happens. A
// fleet of such workers needs a Silence of zero, because workers without news would be dropped otherwise. In a
// KVAdmitMsg or KVEvictMsg of LMCache the sequence 0 may mean that the operation has no number, so sequence 0 is
// treated as no number.
package serve
