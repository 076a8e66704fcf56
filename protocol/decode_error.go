package protocol

import (
	"strconv"
	"unicode/utf8"
)

// A DecodeCode is the kind of a DecodeError, for callers to switch on. Every kind means that the peer sent bytes that
// this node does not accept, and that nothing of the bytes was used.
type DecodeCode uint8

// The kinds of refusal.
const (
	_                    DecodeCode = iota
	DecodeEmpty                     // the payload has no bytes: some peers report a failure in this way
	DecodeMessageTooLong            // longer than Limits.MessageBytes
	DecodeTruncated                 // a value, or the stated length of a value, exceeds the remaining bytes
	DecodeTrailing                  // bytes follow the message
	DecodeTooDeep                   // nested deeper than Limits.Depth
	DecodeReserved                  // the byte 0xc1, which msgpack never uses
	DecodeWrongType                 // the msgpack type is not the type that the field declares
	DecodeMissingField              // a field without a default is absent
	DecodeDuplicateField            // a declared field is given twice
	DecodeStringTooLong             // a string longer than the limit
	DecodeBlobTooLong               // a bin longer than the limit
	DecodeArrayTooLong              // an array longer than the limit
	DecodeMapTooLong                // a map longer than Limits.MapLen
	DecodeOutOfRange                // an integer that the field cannot hold
	DecodeInvalidUTF8               // a string that is not UTF-8
	DecodeMissingTag                // no "type" field
	DecodeUnknownTag                // a "type" that no known message has
	DecodeWrongTag                  // a known "type", but not the type of the expected message
	DecodeUnknownFormat             // a memory format that LMCache does not define
	DecodeUnknownDtype              // a dtype name that LMCache does not define
	DecodeBadUUID                   // not the 36-character form of a UUID
	DecodeBadPullID                 // not 32 hex digits in lower case
	DecodeLengthMismatch            // lists that belong together have different lengths
	DecodeUnknownValue              // a text or number that is not among the field's values
	DecodeBadJSON                   // text that is not JSON
	decodeCodes
)

// decodeTexts gives each code a name, and the remedy at the end of the text of Error.
var decodeTexts = [decodeCodes]struct{ name, remedy string }{
	DecodeEmpty:          {"empty message", "the peer failed while serving, see its log"},
	DecodeMessageTooLong: {"message too long", "send smaller batches or raise the limit"},
	DecodeTruncated:      {"truncated", "check that the frame arrived whole"},
	DecodeTrailing:       {"trailing bytes", "send one message per frame"},
	DecodeTooDeep:        {"nested too deep", "flatten the value or raise the limit"},
	DecodeReserved:       {"reserved byte", "check that the peer speaks msgpack"},
	DecodeWrongType:      {"wrong type", "check that both ends speak the same revision"},
	DecodeMissingField:   {"missing field", "check that both ends speak the same revision"},
	DecodeDuplicateField: {"duplicate field", "send each field once"},
	DecodeStringTooLong:  {"string too long", "shorten it or raise the limit"},
	DecodeBlobTooLong:    {"blob too long", "shorten it or raise the limit"},
	DecodeArrayTooLong:   {"array too long", "send smaller batches or raise the limit"},
	DecodeMapTooLong:     {"map too long", "send fewer fields or raise the limit"},
	DecodeOutOfRange:     {"out of range", "check the peer's arithmetic"},
	DecodeInvalidUTF8:    {"invalid utf-8", "send text as utf-8 and bytes as bin"},
	DecodeMissingTag:     {"missing tag", "check that the peer tags its messages"},
	DecodeUnknownTag:     {"unknown tag", "check that both ends speak the same revision"},
	DecodeWrongTag:       {"wrong tag", "check that the peer was reached at the right port"},
	DecodeUnknownFormat:  {"unknown format", "check that both ends speak the same revision"},
	DecodeUnknownDtype:   {"unknown dtype", "check that both ends speak the same revision"},
	DecodeBadUUID:        {"bad uuid", "send the 36-character form"},
	DecodeBadPullID:      {"bad pull id", "send 32 hex digits in lower case"},
	DecodeLengthMismatch: {"length mismatch", "send one entry per item in each list"},
	DecodeUnknownValue:   {"unknown value", "check that both ends speak the same revision"},
	DecodeBadJSON:        {"not json", "send an object, or msgpack"},
}

// String returns a short name of the code, for logs and metric labels.
func (c DecodeCode) String() string {
	if c == 0 || c >= decodeCodes {
		return "DecodeCode(" + strconv.Itoa(int(c)) + ")"
	}
	return decodeTexts[c].name
}

// A DecodeError says why bytes were refused. The error keeps no view of the bytes.
type DecodeError struct {
	Code    DecodeCode
	Message string // the message that was decoded; "" if not even the tag was read
	Field   string // the field, or "" if the fault is in no field; at most quoteMax bytes of the peer's text
	Offset  int    // where the offending value starts, in bytes from the start of the payload
	Found   string // what the bytes contain; at most quoteMax bytes of the peer's text
	Want    string // what would be accepted; may be ""
}

// Error returns a line with the place, the kind, what was found, what was expected, and the remedy.
func (e *DecodeError) Error() string {
	b := make([]byte, 0, 160)
	b = append(b, "decode "...)
	switch {
	case e.Message != "" && e.Field != "":
		b = append(b, e.Message+"."+e.Field...)
	case e.Message != "":
		b = append(b, e.Message...)
	case e.Field != "":
		b = append(b, "message field "+e.Field...)
	default:
		b = append(b, "message"...)
	}
	b = append(b, " at byte "...)
	b = strconv.AppendInt(b, int64(e.Offset), 10)
	b = append(b, ": "+e.Code.String()...)
	if e.Found != "" {
		b = append(b, ": found "+e.Found...)
	}
	if e.Want != "" {
		b = append(b, ", want "+e.Want...)
	}
	if e.Code > 0 && e.Code < decodeCodes {
		b = append(b, "; "+decodeTexts[e.Code].remedy...)
	}
	return string(b)
}

// quoteMax is the limit on the bytes of a peer's text that an error quotes.
const quoteMax = 48

// quoteBytes returns a peer's bytes as a quoted text for an error: bounded, escaped, and copied.
func quoteBytes(b []byte) string {
	if len(b) <= quoteMax {
		return strconv.Quote(string(b))
	}
	cut := quoteMax
	for cut > quoteMax-utf8.UTFMax && !utf8.RuneStart(b[cut]) {
		cut--
	}
	return strconv.Quote(string(b[:cut])) + "... (" + strconv.Itoa(len(b)) + " bytes)"
}
