package protocol

import "strconv"

// A Tag says which message a payload is. On the wire the tag is the class name of the reference implementation, in the
// map entry "type"; the names of kvferry's own messages begin with Kvf.
type Tag uint8

// The messages of this package.
const (
	TagNone Tag = iota // no message
	TagAllocRequest
	TagAllocResponse       // the upstream revisions' reply
	TagAscendAllocResponse // LMCache-Ascend's reply
	TagProxyNotif
	TagPullReadyNotif
	TagPullReadyDoneAck
	TagPullDoneSignal
	TagHixlInitRequest
	TagHixlInitResponse
	TagHixlReadyRequest
	TagHixlReadyResponse
	TagHixlMemInfoRequest
	TagHixlMemInfoResponse
	TagRenewRequest  // only between kvferry nodes
	TagRenewResponse // only between kvferry nodes
	TagEndRequest    // only between kvferry nodes
	TagEndResponse   // only between kvferry nodes
	TagCacheQueryRequest
	TagCacheQueryResponse
	// Sharing between peers.
	TagAscendBatchedLookupAndGetMsg
	TagAscendBatchedLookupAndGetRetMsg
	TagAscendBatchedLookupAndGetDoneMsg
	TagAscendBatchedLookupAndGetDoneRetMsg
	TagAscendQueryDonePortMsg
	TagAscendQueryDonePortRetMsg
	TagAscendBatchedLookupAndPutMsg
	TagBatchedLookupAndGetMsg
	TagBatchedLookupAndGetRetMsg
	TagBatchedLookupAndPutMsg
	TagBatchedLookupAndPutRetMsg
	TagP2PErrorMsg
	TagP2PInitSideMsg
	TagP2PInitSideRetMsg
	// Between a worker and its controller.
	TagRegisterMsg
	TagRegisterRetMsg
	TagDeRegisterMsg
	TagHeartbeatMsg
	TagHeartbeatRetMsg
	TagBatchedP2PLookupMsg
	TagBatchedP2PLookupRetMsg
	TagKVAdmitMsg
	TagKVEvictMsg
	TagBatchedKVOperationMsg
	TagFullSyncStartMsg
	TagFullSyncStartRetMsg
	TagFullSyncBatchMsg
	TagFullSyncEndMsg
	TagFullSyncStatusMsg
	TagFullSyncStatusRetMsg
	TagErrorMsg
	TagClearWorkerMsg
	TagPinWorkerMsg
	TagCompressWorkerMsg
	TagDecompressWorkerMsg
	TagMoveWorkerMsg
	TagHealthWorkerMsg
	TagCheckFinishWorkerMsg
	// Between an engine and the agent of its host: ours alone.
	TagAttachRequest
	TagAttachResponse
	TagEngineCall
	TagEngineAnswer
	TagEngineShow
	TagEngineShown
	TagEngineReturned
	tags
)

// tagField is the map entry that holds the tag.
const tagField = "type"

// String returns the tag as it stands on the wire.
func (t Tag) String() string {
	if t >= tags {
		return "Tag(" + strconv.Itoa(int(t)) + ")"
	}
	return tagNames[t]
}

// parseTag returns the tag with this name, or TagNone for an unknown name.
func parseTag(name []byte) Tag {
	for t := TagNone + 1; t < tags; t++ {
		if tagNames[t] == string(name) {
			return t
		}
	}
	return TagNone
}

// HasTag reports whether PeekTag returns this tag. Of a message with another tag HasTag reads only the tag, if the
// encoder wrote the tag first, as every encoder does.
func HasTag(b []byte, want Tag, lim *Limits) bool {
	if !MayHaveTag(b, want, lim) {
		return false
	}
	r := newReader(b, lim)
	if first, _ := r.findTag(); first != want {
		return false
	}
	_, err := PeekTag(b, lim)
	return err == nil
}

// MayHaveTag reports whether b may be a message with this tag. It returns false if b begins with another tag, in the
// form that all encoders write: Decode would refuse b as well, at greater cost. Nothing further is read, so true is no
// promise.
func MayHaveTag(b []byte, want Tag, lim *Limits) bool {
	r := newReader(b, lim)
	return r.readMapHeader() <= 0 || !r.takeText(tagField) || r.off >= len(b) || b[r.off]&0xe0 != 0xa0 || r.takeText(want.String())
}

// PeekTag reads all of b and returns the tag: b is then a well-formed msgpack map within the limits, with string names,
// the tag of exactly one known message, and no bytes behind the map. Decode checks the content of the declared fields.
// PeekTag allocates only for an error, a *DecodeError.
func PeekTag(b []byte, lim *Limits) (Tag, error) {
	r := newReader(b, lim)
	tag := TagNone
	for n := r.readMapHeader(); n > 0 && r.ok(); n-- {
		at := r.off
		name := r.readName()
		if string(name) != tagField {
			r.skipValue(2)
			continue
		}
		r.field = tagField
		if tag != TagNone {
			r.fail(DecodeDuplicateField, at, quoteBytes(name), "")
			break
		}
		tag = r.readTag()
		r.field = ""
	}
	r.expectEnd()
	if r.ok() && tag == TagNone {
		r.failMissingTag()
	}
	if !r.ok() {
		return TagNone, r.err
	}
	return tag, nil
}
