package fuzz

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kvferry/kvferry/protocol"
)

// The targets of the decoders of each exchange between peers, between a worker and the controller, and between an
// engine and the agent: every decoder sees every input, and is checked as in the target of a single decoder.
var (
	AgentAttach = familyTarget("AgentAttach", protocol.TagAttachRequest, protocol.TagAttachResponse)
	AgentCall   = familyTarget("AgentCall", protocol.TagEngineCall, protocol.TagEngineAnswer, protocol.TagEngineShow,
		protocol.TagEngineShown, protocol.TagEngineReturned)
	P2PGet = familyTarget("P2PGet", protocol.TagAscendBatchedLookupAndGetMsg, protocol.TagAscendBatchedLookupAndGetRetMsg,
		protocol.TagBatchedLookupAndGetMsg, protocol.TagBatchedLookupAndGetRetMsg)
	P2PDone = familyTarget("P2PDone", protocol.TagAscendBatchedLookupAndGetDoneMsg,
		protocol.TagAscendBatchedLookupAndGetDoneRetMsg, protocol.TagAscendQueryDonePortMsg,
		protocol.TagAscendQueryDonePortRetMsg)
	P2POther = familyTarget("P2POther", protocol.TagAscendBatchedLookupAndPutMsg, protocol.TagBatchedLookupAndPutMsg,
		protocol.TagBatchedLookupAndPutRetMsg, protocol.TagP2PErrorMsg, protocol.TagP2PInitSideMsg,
		protocol.TagP2PInitSideRetMsg)
	ControllerWorkers = familyTarget("ControllerWorkers", protocol.TagRegisterMsg, protocol.TagRegisterRetMsg,
		protocol.TagDeRegisterMsg, protocol.TagHeartbeatMsg, protocol.TagHeartbeatRetMsg, protocol.TagErrorMsg)
	ControllerLookup = familyTarget("ControllerLookup", protocol.TagBatchedP2PLookupMsg, protocol.TagBatchedP2PLookupRetMsg)
	ControllerFeed   = familyTarget("ControllerFeed", protocol.TagKVAdmitMsg, protocol.TagKVEvictMsg,
		protocol.TagBatchedKVOperationMsg)
	ControllerSync = familyTarget("ControllerSync", protocol.TagFullSyncStartMsg, protocol.TagFullSyncStartRetMsg,
		protocol.TagFullSyncBatchMsg, protocol.TagFullSyncEndMsg, protocol.TagFullSyncStatusMsg,
		protocol.TagFullSyncStatusRetMsg)
	ControllerControl = decoderTarget("ControllerControl", controlTags()...)
)

// ControllerJSON compares every decoder of a message that may be JSON with another reader of JSON: an accepted input is
// JSON, and has the same values for the other reader.
var ControllerJSON = statelessTarget("ControllerJSON", checkJSON, controllerJSONSeeds)

// controlTags returns the tags of the requests to workers, which share a decoder.
func controlTags() (tags []protocol.Tag) {
	for tag := protocol.TagClearWorkerMsg; tag <= protocol.TagCheckFinishWorkerMsg; tag++ {
		tags = append(tags, tag)
	}
	return tags
}

// familyTarget returns the target of the decoders of the messages with the given tags.
func familyTarget(name string, tags ...protocol.Tag) Target {
	return registerTarget(Target{name: name, tags: tags, begin: func() Check {
		used := make([]protocol.Message, len(tags))
		for i, tag := range tags {
			used[i] = protocol.NewMessage(tag)
		}
		return func(b []byte) error {
			for i, tag := range tags {
				if !protocol.MayHaveTag(b, tag, nil) && i > 0 {
					continue // The first decoder stands for all decoders that refuse the input.
				}
				if err := checkDecoder(b, used[i], []protocol.Tag{tag}); err != nil {
					return err
				}
			}
			return nil
		}
	}})
}

func checkJSON(b []byte) error {
	tag, peekErr := protocol.PeekControllerTag(b, nil)
	for want := protocol.TagRegisterMsg; protocol.NewMessage(want) != nil; want++ {
		m := protocol.NewMessage(want)
		err := m.Decode(b, nil)
		if err != nil {
			if bad := checkDecodeError(b, err); bad != nil {
				return bad
			}
			continue
		}
		if same := slices.Contains(controlTags(), tag) && slices.Contains(controlTags(), want); peekErr != nil || tag != want &&
			!same {
			return fmt.Errorf("%T accepted, but PeekControllerTag says %v, %w", m, tag, peekErr)
		}
		if isJSON(b) {
			if err := checkSameInJSON(b, m.Append(nil)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkSameInJSON checks that each field of a message has the same value in the JSON. A field that is absent in the
// JSON may have the default value in the message.
func checkSameInJSON(text, payload []byte) error {
	var theirs, ours map[string]any
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	if err := d.Decode(&theirs); err != nil || d.More() {
		return fmt.Errorf("%q is accepted, and to another reader %w", text, err)
	}
	if err := msgpack.Unmarshal(payload, &ours); err != nil {
		return err
	}
	for name, value := range ours {
		given, ok := theirs[name]
		if ok && name != "layout_info" && name != "kvf_inc" && !coversValue(given, value) { // Our decoder drops misses.
			return fmt.Errorf("%s: %v, and to another reader %v", name, value, given)
		}
	}
	return nil
}

// coversValue reports whether the value that another reader of JSON read is a value of ours, or contains it: maps may
// have additional fields, which we skip.
func coversValue(theirs, ours any) bool {
	switch v := ours.(type) {
	case map[string]any:
		object, ok := theirs.(map[string]any)
		for name, inner := range v {
			if given, has := object[name]; has && !coversValue(given, inner) {
				return false
			}
		}
		return ok
	case []any:
		list, ok := theirs.([]any)
		if !ok || len(list) != len(v) {
			return false
		}
		for i := range v {
			if !coversValue(list[i], v[i]) {
				return false
			}
		}
		return true
	case nil:
		return theirs == nil || theirs == "" || isObject(theirs) // empty values, and arguments, which are skipped
	case float64:
		n, ok := theirs.(json.Number)
		f, _ := n.Float64() // Too large is infinite here as well.
		return ok && f == v
	case string, bool:
		return theirs == ours
	default:
		n, ok := theirs.(json.Number)
		return ok && (string(n) == fmt.Sprint(v) || string(n) == "-0" && fmt.Sprint(v) == "0")
	}
}

func isObject(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}
