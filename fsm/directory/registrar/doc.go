// Package registrar is a worker's side of directories: a [Registrar] makes it known to each that is listed, and tells
// them what its store has; [Lookups] ask them who has the first chunks of a prefix. It speaks the messages of LMCache's
// workers. Which chunks there are it reads from the store's journal; it decides nothing of them.
//
// A caller may rely on this:
//
//   - Each directory is a replica by itself: what is told to one waits for no other, and has numbers of its own.
//   - Nobody is told that a chunk is there which is not, in the order in which it is told: an operation says what the
//     journal says, a batch of a full sync what the store has as it is sent. So a batch leaves out what went since the
//     sync began, and nothing is copied to tell of it.
//   - A directory that is down, slow, restarted, or lies, costs itself what it does not know, and nobody else anything.
//     What is no answer to the question changes nothing: the connection is given up and the question asked again.
//   - What was lost is found: where nothing is to be told, something true is told again before a heartbeat, so that the
//     directory notices the gap. A journal that is shorter than what was not told ends in a full sync, as does whatever
//     a directory asks one for. One sync at a time goes to a directory, [Config.SyncEvery] after the last one or more;
//     it is given up when the connection is lost on which it is told. A directory that did not know the worker when its
//     heartbeat came has forgotten it with its syncs: those did not fail.
//   - A directory that says after what silence it forgets a worker gets heartbeats more often than that.
//   - After [Registrar.Leave] nothing is asked anew. What is under way is awaited, and then the directory told that the
//     worker is gone: so nothing that was said before makes it known again.
//   - Both are rooms: they take completions and deadlines by their owner, and never hold more of them than
//     [Config.Need] and [Config.Asks] say.
//
// To a controller of LMCache's the fields of ours are not sent. It notices no gap that anybody could rely on: so each
// connection that is lost to one, and each registration but the first, ends in a full sync that nobody asked for.
//
// Keys that differ by anything but their chunk's hash are one chunk to a directory, and one whose hash has more than 64
// bits is none: no message of LMCache's can name it. Who hands it keys of an engine refuses such, and says so.
package registrar
