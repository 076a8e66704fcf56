// Package protocol encodes and decodes the messages of kvferry: between a prefill rank (the sender) and a decode rank
// (the receiver), between peers that share chunks (the requester and the owner), between a worker and its controller,
// and between an engine and the agent of the same host. All messages but the last group are byte for byte the messages
// of LMCache and LMCache-Ascend, with extensions that decoders of these programs skip. The package also has the values
// in the messages: cache-engine keys, dtypes, memory formats, layouts, buffer references and endpoints.
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
// The struct of a message is the specification of the message. A field has a wire tag with the field's name on the wire
// and options, which `go doc ./tools/codecgen` explains:
//
//	Code uint32 `wire:"kvf_code,omitzero"` // why the step failed; 0 if the step succeeded
//
// `go generate ./protocol` then writes the codec (codecs.go) and the list of fields in the documents. The tests and the
// fuzz targets that compare decoders read the same tags.
//
// # Messages
//
// Every message is a msgpack map, which is the payload of one frame of ZMQ or of a stream. The tag of a message, the
// entry "type", says which message the payload is:
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
//	CacheQueryRequest, ...Response        sender <-> receiver: which of these chunks the sender may read back
//
// Between peers that share chunks (FamilyP2P; names without Ascend are messages of LMCache peers without
// LMCache-Ascend):
//
//	P2PInitSideMsg, ...RetMsg             requester <-> owner: the lookup socket; ends the handshake
//	AscendBatchedLookupAndGetMsg          requester -> owner: get these chunks
//	AscendBatchedLookupAndGetRetMsg       owner -> requester: how many are written, or may be read
//	AscendBatchedLookupAndGetDoneMsg      requester -> owner: the reads have ended; ...DoneRetMsg
//	AscendQueryDonePortMsg, ...RetMsg     requester <-> owner: the done socket
//	AscendBatchedLookupAndPutMsg          served by no node; answered by P2PErrorMsg
//	BatchedLookupAndGetMsg, ...PutMsg     the same from LMCache without LMCache-Ascend; ...RetMsg
//	P2PErrorMsg                           owner -> requester: refused, P2PErrorCode
//
// Between a worker and its controller (FamilyController), which may be JSON:
//
//	RegisterMsg, DeRegisterMsg            worker -> controller: begin and end a registration; RegisterRetMsg
//	HeartbeatMsg, HeartbeatRetMsg         worker <-> controller: the worker is alive; Command
//	BatchedP2PLookupMsg, ...RetMsg        worker <-> controller: which workers have these chunks; Holder
//	KVAdmitMsg, KVEvictMsg                worker -> controller: a chunk was stored, or evicted
//	BatchedKVOperationMsg                 worker -> controller: several stored or evicted chunks; KVOperation
//	FullSyncStartMsg, ...BatchMsg, ...    worker -> controller: every chunk that the worker has
//	WorkerControlMsg                      controller -> worker: a request about its chunks (seven tags)
//	ErrorMsg                              either way: refused
//
// Between an engine and the agent of the same host (FamilyAgent). These messages belong to kvferry and go over a Unix
// socket:
//
//	KvfAttachRequest, KvfAttachResponse   engine <-> agent: begin or resume a session; the memory
//	KvfCall, KvfAnswer                    engine <-> agent: a call, CallOp, and the outcome (EngineCall, EngineAnswer)
//	KvfShow, KvfShown                     agent <-> engine: pages of a fetch, and that the engine read them (EngineShow)
//	KvfReturned                           agent -> engine: the call's memory is given back (EngineReturned)
//
// A caller that knows which message to expect calls Decode of that type; any other caller calls PeekTag first. Describe
// turns any known message into text for people.
//
// # Decoding
//
// Bytes of peers are hostile. Generated decoders share a bounded reader: no reflection, no recursion beyond
// Limits.Depth, nothing allocated for a length that exceeds the remaining bytes. A refusal is a *DecodeError: Code tells
// the kind of error, and Field and Offset tell the place.
//
// Decode fills the receiver in place. Slices are truncated and appended to, so a receiver that is used again allocates
// nothing; byte slices (keys, names, blobs) are views into the decoded bytes and are valid only as long as these bytes.
// After an error the receiver's content is unspecified, but the receiver's slices may be used again.
//
// The rules follow msgspec, which the peers use: the tag and the fields may come in any order, unknown fields are
// skipped, fields with a default may be absent, integers, strings, arrays and maps may be wider than needed; nil, bool,
// float and bin are never accepted in place of another type. Two rules are stricter on purpose:
//
//   - A field given twice is refused, where msgspec uses the last value. Many checks have been circumvented by two
//     parsers that disagree about which value counts, and no encoder writes a field twice.
//   - Lists that are read in parallel must be equally long. Peers raise an error about different lengths as well, but
//     later, when pages are already allocated.
//
// # JSON
//
// Messages of FamilyController may arrive as JSON: the first byte of a JSON message is a brace. kvferry never sends
// JSON. The decoder converts JSON to msgpack and then decodes the msgpack by the rules above; offsets in errors refer to
// the JSON. Only in JSON the last of two fields of the same name counts: LMCache's controller reads JSON in this way,
// and programs that we cannot change write duplicate fields.
//
// # Encoding
//
// Append writes the smallest integers and headers, the fields in the order of the reference implementations, and every
// field of the reference implementations even if the value is the default. Append never fails and allocates only when
// the given slice is too small.
//
// # Extensions
//
// Fields named kvf_* belong to kvferry. These fields follow the known fields in the same map, where decoders of other
// programs skip unknown fields; each field is absent when zero. HasExt says that a message carries kvf_* fields, and
// without them Ext is zero. Only the state machines know the meaning of the fields; this package only carries them.
// Only kvferry nodes send RenewRequest, EndRequest and their responses. Renewals, and the requests that extensions
// make of a message without keys, go only to peers that announced the matching Cap bit.
package protocol
