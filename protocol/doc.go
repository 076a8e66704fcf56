// Package protocol encodes and decodes the messages of kvferry: between a prefill rank (the sender) and a decode rank
// (the receiver), between peers that share chunks (the requester and the owner), between a worker and its controller,
// and between an engine and the agent of its host. All but the last are byte for byte those of LMCache and
// LMCache-Ascend, with extensions that other decoders skip. The package also has their values: cache-engine keys,
// dtypes, memory formats, layouts, buffer references and endpoints.
//
// Example: a sender asks for pages, and a receiver decodes the request and replies.
//
//	b := (&protocol.AllocRequest{Keys: keys, Format: f, Shape: s, Dtype: d, LastChunkTokens: 256}).Append(nil)
//
//	var m protocol.AllocRequest // used again for the next request
//	if err := m.Decode(b, nil); err != nil {
//		return err // a *protocol.DecodeError, which names the field and the byte
//	}
//	reply := (&protocol.AllocResponse{RemoteIndexes: pages, RemoteUUIDs: buffers}).Append(nil)
//
// # Adding a field
//
// The struct of a message is its specification. A field has a wire tag with its name on the wire and its options, which
// `go doc ./tools/codecgen` explains:
//
//	Code uint32 `wire:"kvf_code,omitzero"` // why the step failed; 0 if it did not
//
// `go generate ./protocol` then writes the codec (codecs.go) and the list of fields in the documents. The tests and the
// fuzz targets that compare decoders read the same tags.
//
// # Messages
//
// Every message is one msgpack map, the payload of one frame, ZMQ's or a stream's. Its tag, the entry "type", says
// which message it is:
//
//	AllocRequest                          sender -> receiver: allocate pages for these keys
//	AscendAllocResponse, AllocResponse    receiver -> sender: the pages (one Go type, ReplyForm)
//	PullReadyNotif                        sender -> receiver: an offer, pages that may be read
//	PullReadyDoneAck                      receiver -> sender: which chunks of the offer will be read
//	PullDoneSignal                        receiver -> sender: the reads of the offer have ended
//	ProxyNotif                            sender -> proxy: this request's last batch has ended
//	HixlInitRequest, ...Response          either way: the handshake, step 1
//	HixlReadyRequest, ...Response         step 2
//	HixlMemInfoRequest, ...Response       step 3: the registered buffers
//	RenewRequest, RenewResponse           lease holder <-> owner: extend or end read grants (kvferry only)
//	EndRequest, EndResponse               sender <-> receiver: the outcome of a request (kvferry only)
//	CacheQueryRequest, ...Response        sender <-> receiver: which of these chunks it may read back
//
// Between peers that share (FamilyP2P; names without Ascend are of LMCache's other peers):
//
//	P2PInitSideMsg, ...RetMsg             requester <-> owner: the lookup socket; ends the handshake
//	AscendBatchedLookupAndGetMsg          requester -> owner: get these chunks
//	AscendBatchedLookupAndGetRetMsg       owner -> requester: how many are written, or may be read
//	AscendBatchedLookupAndGetDoneMsg      requester -> owner: the reads have ended; ...DoneRetMsg
//	AscendQueryDonePortMsg, ...RetMsg     requester <-> owner: the done socket
//	AscendBatchedLookupAndPutMsg          no node serves it; answered by P2PErrorMsg
//	BatchedLookupAndGetMsg, ...PutMsg     the same of other peers; ...RetMsg
//	P2PErrorMsg                           owner -> requester: refused, P2PErrorCode
//
// Between a worker and its controller (FamilyController), which may be JSON:
//
//	RegisterMsg, DeRegisterMsg            worker -> controller: begin and end a registration; RegisterRetMsg
//	HeartbeatMsg, HeartbeatRetMsg         worker <-> controller: the worker is alive; Command
//	BatchedP2PLookupMsg, ...RetMsg        worker <-> controller: which workers have these chunks; Holder
//	KVAdmitMsg, KVEvictMsg                worker -> controller: a chunk was stored, or evicted
//	BatchedKVOperationMsg                 worker -> controller: several of these; KVOperation
//	FullSyncStartMsg, ...BatchMsg, ...    worker -> controller: every chunk that the worker has
//	WorkerControlMsg                      controller -> worker: a request about its chunks (seven tags)
//	ErrorMsg                              either way: refused
//
// Between an engine and the agent of its host (FamilyAgent), which are ours and go over a Unix socket:
//
//	KvfAttachRequest, KvfAttachResponse   engine <-> agent: begin or resume a session; the memory
//	KvfCall, KvfAnswer                    engine <-> agent: a call, CallOp, and its outcome (EngineCall, EngineAnswer)
//	KvfShow, KvfShown                     agent <-> engine: pages of a fetch to read, and that they are read (EngineShow)
//	KvfReturned                           agent -> engine: the call's memory is given back (EngineReturned)
//
// A caller that knows what to expect calls Decode of that type; one that does not asks PeekTag
// first. Describe turns any known message into text for people.
//
// # Decoding
//
// Bytes of peers are hostile. Generated decoders use one bounded reader: no reflection, no
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
//   - A field given twice is refused, where msgspec lets the last one win. Many checks have been
//     circumvented through two parsers that disagree about which one counts, and no encoder produces it.
//   - Lists that are read in parallel must be equally long. Peers raise an
//     error about that as well, but later, when pages are already allocated.
//
// # JSON
//
// Messages of FamilyController may come as JSON, when their first byte is a brace; none is ever sent. JSON is made into
// msgpack and then decoded by the rules above, with the places of faults in the JSON. Only here the last of two fields
// of one name counts: LMCache's controller reads JSON so, and programs that we cannot change write it.
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
// it does not. Only the machines know what they mean; this package only carries them.
// Only kvferry nodes send RenewRequest, EndRequest and their responses. Renewals, and the requests that extensions
// make of a message without keys, go only to peers that announced the Cap bit for them.
package protocol
