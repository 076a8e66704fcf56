// Package registrar is a worker's client of chunk directories. A [Registrar] registers the worker with each listed
// directory and reports the contents of the worker's store. [Lookups] ask the directories which instances have the
// first chunks of a prefix. Both speak the messages of LMCache's workers. The registrar reads from the store's
// journal which chunks are present, and makes no decisions about chunks.
//
// Example, with a single directory:
//
//	Begin           the registrar opens the request line and sends a RegisterMsg
//	RegisterRetMsg  the worker is known; heartbeats start
//	store: chunk 1  Pump posts a BatchedKVOperationMsg with operation 0 on the feed
//	HeartbeatRetMsg requests a full sync: FullSyncStartMsg, batches, FullSyncEndMsg,
//	                and FullSyncStatusMsg until the directory says that the sync is complete
//	Leave           a DeRegisterMsg is posted; CountActive becomes 0
//
// A caller may rely on the following:
//
//   - Each directory is a separate replica: reports to a directory do not wait for the remaining directories, and the
//     operations of each directory are numbered separately.
//   - A report never claims a chunk that the store does not have at that point in the order of reports: an operation
//     says what the journal says, and a batch of a full sync says what the store has when the batch is sent. So a
//     batch leaves out chunks that were evicted since the sync began, and no copy of the store's contents is needed.
//   - A directory that is down, slow or restarted, or sends wrong replies, loses only its own knowledge and affects
//     nobody else. A reply that does not match its request changes nothing: the connection is closed and the request
//     is repeated.
//   - Losses are detected. When there is nothing to report, a harmless operation is sent before a heartbeat, so that
//     the directory notices a gap. If the journal is too short for the changes that were not reported yet, the
//     registrar starts a full sync, and also if a directory requests a full sync. For each directory a single sync
//     runs at a time, begun at least [Config.SyncEvery] after the previous sync; the sync is given up when the
//     connection for its batches is lost. A directory that did not know the worker when a heartbeat arrived has
//     forgotten the worker together with its syncs; these syncs do not count as failures.
//   - A directory that states the silence after which it drops a worker receives heartbeats more often than that.
//   - After [Registrar.Leave] no new requests are sent. The registrar waits for the requests in flight and then
//     deregisters the worker, so that no earlier message can make the worker known again.
//   - Registrar and Lookups are rooms of a rank: they receive completions and deadlines by their owner, and never
//     have more of these outstanding than [Config.RegistrarNeed] and [Config.LookupNeed] state.
//
// A controller of LMCache (a plain directory) is not sent the fields of kvferry. Its detection of gaps is not
// reliable, so each lost connection to a plain directory, and each registration except the first, leads to a full
// sync that nobody requested.
//
// Keys that differ only in fields besides the hash of the chunk are the same chunk to a directory. A chunk with a
// hash of more than 64 bits is not reported, because LMCache's messages cannot name it. The component that accepts
// keys from an engine refuses such keys with an error.
package registrar
