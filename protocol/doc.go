// Package protocol holds the words that two nodes say to each other while KV cache moves from a
// prefill rank (the sender) to a decode rank (the receiver), or from a peer that has it (the owner) to
// one that wants it (the requester), and those of a worker and its controller: messages, cache-engine keys, dtypes,
// memory formats, buffer references and endpoints, byte for byte as LMCache and LMCache-Ascend
// put them on the wire; and the words of our own between an engine and the agent of its host.
//
// # Messages
//
// Every message is one msgpack map, the payload of one frame, ZMQ's or a stream's. Its tag, the entry "type", says
// which message it is:
//
//	AllocRequest                          sender -> receiver: pages for these keys, please
//	AscendAllocResponse, AllocResponse    receiver -> sender: these pages (one Go type, ReplyForm)
//	PullReadyNotif                        sender -> receiver: these pages may be read
//	PullReadyDoneAck                      receiver -> sender: noted, or these I have, or no
//	PullDoneSignal                        receiver -> sender: nothing reads that offer any more
//	ProxyNotif                            sender -> proxy: this request's last batch has ended
//	HixlInitRequest, ...Response          either way: the handshake, step 1
//	HixlReadyRequest, ...Response         step 2
//	HixlMemInfoRequest, ...Response       step 3: the registered buffers
//	RenewRequest, RenewResponse           reader <-> owner: more time for read grants, or done (ours)
//	EndRequest, EndResponse               sender <-> receiver: how a request ended (ours)
//	CacheQueryRequest, ...Response        sender <-> receiver: which of these chunks it may read back
//
// Between peers that share (FamilyP2P; names without Ascend are of LMCache's other peers):
//
//	P2PInitSideMsg, ...RetMsg             requester <-> owner: where are you asked? ends the handshake
//	AscendBatchedLookupAndGetMsg          requester -> owner: these chunks, please
//	AscendBatchedLookupAndGetRetMsg       owner -> requester: so many are stored, or may be read here
//	AscendBatchedLookupAndGetDoneMsg      requester -> owner: nothing reads them any more; ...DoneRetMsg
//	AscendQueryDonePortMsg, ...RetMsg     requester <-> owner: where are dones taken?
//	AscendBatchedLookupAndPutMsg          nobody serves it; answered by P2PErrorMsg
//	BatchedLookupAndGetMsg, ...PutMsg     the same of other peers; ...RetMsg
//	P2PErrorMsg                           owner -> requester: no, P2PErrorCode
//
// Between a worker and its controller (FamilyController), which may be JSON:
//
//	RegisterMsg, DeRegisterMsg            worker -> controller: here I am, and no more; RegisterRetMsg
//	HeartbeatMsg, HeartbeatRetMsg         worker <-> controller: I live; then do this, Command
//	BatchedP2PLookupMsg, ...RetMsg        worker <-> controller: who has these chunks? these, Holder
//	KVAdmitMsg, KVEvictMsg                worker -> controller: this chunk came, or went
//	BatchedKVOperationMsg                 worker -> controller: these came and went, KVOperation
//	FullSyncStartMsg, ...BatchMsg, ...    worker -> controller: this is all that I have
//	WorkerControlMsg                      controller -> worker: do something with it (seven names)
//	ErrorMsg                              either way: no
//
// Between an engine and the agent of its host (FamilyAgent), which are ours and go over a Unix socket:
//
//	KvfAttachRequest, KvfAttachResponse   engine <-> agent: here I am, or again; then this is the memory
//	KvfCall, KvfAnswer                    engine <-> agent: do this, CallOp; it ended so (EngineCall, EngineAnswer)
//	KvfShow, KvfShown                     agent <-> engine: read these pages of a fetch; I have (EngineShow, EngineShown)
//	KvfReturned                           agent -> engine: the call's memory is yours again (EngineReturned)
//
// A caller that knows what to expect calls Decode of that type; one that does not asks PeekTag
// first. Describe turns any known message into text for people.
//
// # Decoding
//
// Peer bytes are hostile. Decoders are written by hand over one bounded reader: no reflection, no
// recursion beyond Limits.Depth, nothing allocated for a length that the bytes do not back. A
// refusal is a *DecodeError whose Code tells the kind and whose Field and Offset tell the place.
//
// Decode fills its receiver in place. Slices are truncated and appended to, so a receiver that is
// used again allocates nothing; byte slices (keys, names, blobs) are views into the decoded bytes
// and live no longer than those. After an error the receiver's content is unspecified, but its
// slices may be used again.
//
// The rules follow msgspec, which the peers use: the tag and the fields may come in any order,
// unknown fields are skipped, fields with a default may be absent, integers, strings, arrays and
// maps may be wider than needed; nil, bool, float and bin are never taken for something else. Two
// rules are stricter on purpose:
//
//   - A field given twice is refused, where msgspec lets the last one win. Parsers that differ on
//     which one counts have been the way past many a check, and no encoder produces it.
//   - Lists that are read in parallel must be equally long. Peers raise on that, too, but later
//     and with pages already taken.
//
// # JSON
//
// Messages of FamilyController may come as JSON, when their first byte is a brace; none is ever sent. JSON is made into
// msgpack and then decoded by the rules above, with the places of faults in the JSON. Only here the last of two fields
// of one name counts: LMCache's controller reads JSON so, and programs beyond our reach write it.
//
// # Encoding
//
// Append writes the smallest integers and headers, the fields in the order of the reference
// implementations, and every field of theirs even when it holds its default. It never fails and
// allocates only when the given slice is too small.
//
// # Extensions
//
// Fields named kvf_* are ours. They follow the known ones in the same map, where other decoders
// skip them; each is absent when zero. HasExt says that a message carries them, and Ext is zero when
// it does not. What they mean is the business of the machines: here they are only carried.
// RenewRequest, EndRequest and their responses are ours from end to end. Renewals, and the requests that extensions
// make of a message without keys, go only to peers that announced the Cap bit for them.
package protocol
