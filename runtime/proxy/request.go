package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// A request is the parsed body of a client's request. Fields that the proxy does not know go to the engines unchanged.
// Values are slices of the received body, which is not copied, because bodies may be long and many.
type request struct {
	fields   map[string]json.RawMessage
	endpoint *endpoint // nil: a request that generates no text
}

// fieldsMax bounds the fields of a request, because each field takes memory besides the bytes.
const fieldsMax = 256

// argumentBytesMax bounds vllm_xargs.
const argumentBytesMax = 64 << 10

// paramsField is the field of a request that names the agents that send and receive the request's KV cache.
const paramsField = "kv_transfer_params"

// cacheFields are the fields in which a client could name agents, or another request's cache: of KV, and of encoders'
// outputs. The proxy never passes these fields to an engine.
var cacheFields = []string{paramsField, "ec_transfer_params"}

// parseRequest parses a body. Fields about caches are dropped.
func parseRequest(body []byte, a *endpoint) (request, error) {
	r := request{endpoint: a, fields: map[string]json.RawMessage{}}
	object := bytes.TrimLeft(body, space)
	if !json.Valid(body) || object[0] != '{' {
		return r, errors.New("the body is not a JSON object")
	}
	for quoted, value := range jsonFields(object) {
		var name string
		if err := json.Unmarshal(quoted, &name); err != nil {
			return r, err
		}
		if r.fields[name] = value; len(r.fields) > fieldsMax {
			return r, fmt.Errorf("the body has more than %d fields: give fewer", fieldsMax)
		}
	}
	for _, name := range cacheFields {
		delete(r.fields, name)
	}
	return r, r.dropCacheArguments()
}

// dropCacheArguments drops the same fields from vllm_xargs, from which vLLM takes them as well.
func (r request) dropCacheArguments() error {
	const field = "vllm_xargs"
	given, ok := r.fields[field]
	if !ok || isNull(given) {
		return nil
	}
	var args map[string]json.RawMessage
	if len(given) > argumentBytesMax || json.Unmarshal(given, &args) != nil {
		return fmt.Errorf("%s is not a JSON object of at most %d bytes", field, argumentBytesMax)
	}
	for _, name := range cacheFields {
		delete(args, name)
	}
	kept, err := json.Marshal(args)
	r.fields[field] = kept
	return err
}

// A disaggSpec names the receiver of a prompt's cache, in the format of LMCache. Ports are lists with a port for each
// rank.
type disaggSpec struct {
	Request string   `json:"req_id"`
	Host    string   `json:"receiver_host"`
	Init    []uint16 `json:"receiver_init_port"`
	Alloc   []uint16 `json:"receiver_alloc_port"`
}

// answerFields lists fields about the form or length of the answer. Only kv_transfer_params is read of the prefill
// engine's answer.
var answerFields = []string{"stream_options", "min_tokens", "n", "best_of", "logprobs", "top_logprobs",
	"return_token_ids", "return_tokens_as_token_ids", "include", "enable_response_messages"}

// prefillBody returns the body with which a prefill engine computes the prompt and sends the cache.
func (r request) prefillBody(name string, d DecodeEngine) (bodyParts, error) {
	fields := maps.Clone(r.fields)
	for _, name := range answerFields {
		delete(fields, name)
	}
	params, err := json.Marshal(map[string]any{"do_remote_decode": true, "do_remote_prefill": false,
		"disagg_spec": disaggSpec{Request: name, Host: d.Host, Init: d.InitPorts, Alloc: d.AllocPorts}})
	if err != nil {
		return nil, err
	}
	fields[paramsField] = params
	fields["stream"] = json.RawMessage("false")
	for _, limit := range r.endpoint.limitFields {
		fields[limit] = json.RawMessage("1")
	}
	if r.endpoint == responses { // only the decode engine's response is to be stored
		fields["store"] = json.RawMessage("false")
	}
	return joinFields(fields), nil
}

// decodeBody returns the body for a decode engine: with params the engine uses the cache, without params the engine
// computes the prompt.
func (r request) decodeBody(params json.RawMessage) bodyParts {
	fields := r.fields
	if params != nil {
		fields = maps.Clone(fields)
		fields[paramsField] = params
	}
	return joinFields(fields)
}

// bodyParts is a body in several parts that are sent in sequence.
type bodyParts [][]byte

// joinFields returns a JSON object with these fields.
func joinFields(fields map[string]json.RawMessage) bodyParts {
	p, before := bodyParts{}, "{"
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		quoted, _ := json.Marshal(name) // marshalling a string never fails
		p = append(p, fmt.Appendf(nil, "%s%s:", before, quoted), fields[name])
		before = ","
	}
	if len(p) == 0 {
		return bodyParts{[]byte("{}")}
	}
	return append(p, []byte("}"))
}

func (p bodyParts) totalBytes() (n int64) {
	for _, piece := range p {
		n += int64(len(piece))
	}
	return n
}

// joinedBytesMax bounds bodies that are copied into a single part, so that the body can be written at once.
const joinedBytesMax = 16 << 10

func (p bodyParts) newReader() io.ReadCloser {
	if p.totalBytes() <= joinedBytesMax {
		return io.NopCloser(bytes.NewReader(bytes.Join(p, nil)))
	}
	readers := make([]io.Reader, len(p))
	for i, piece := range p {
		readers[i] = bytes.NewReader(piece)
	}
	return io.NopCloser(io.MultiReader(readers...))
}

// cacheParams returns the parameters of the cache in a prefill engine's answer, or nil if the engine sent no cache.
func cacheParams(body []byte) json.RawMessage {
	var a struct {
		Params map[string]json.RawMessage `json:"kv_transfer_params"`
	}
	if json.Unmarshal(body, &a) != nil || len(a.Params) == 0 {
		return nil
	}
	params, err := json.Marshal(a.Params)
	if err != nil {
		return nil
	}
	return params
}
