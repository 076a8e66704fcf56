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

// A request is what a client wants, as it says it: fields that are not known here go to the engines as they came.
// Values are parts of the body that came: bodies may be long, and many, and are not copied.
type request struct {
	fields map[string]json.RawMessage
	api    *api // nil: it asks for no text
}

// fieldsMax bounds the fields of a request: each takes memory beside its bytes.
const fieldsMax = 256

// argumentBytes bounds vllm_xargs.
const argumentBytes = 64 << 10

// paramsField is where a request says of its KV cache which agents send and receive it.
const paramsField = "kv_transfer_params"

// ofCaches are the fields in which a client could name agents, or another request's cache: of KV, and of encoders'
// outputs. They get to no engine.
var ofCaches = []string{paramsField, "ec_transfer_params"}

// parse reads a body. What a client says of caches is left out.
func parse(body []byte, a *api) (request, error) {
	r := request{api: a, fields: map[string]json.RawMessage{}}
	object := bytes.TrimLeft(body, space)
	if !json.Valid(body) || object[0] != '{' {
		return r, errors.New("the body is no JSON object")
	}
	for quoted, value := range fieldsOf(object) {
		var name string
		if err := json.Unmarshal(quoted, &name); err != nil {
			return r, err
		}
		if r.fields[name] = value; len(r.fields) > fieldsMax {
			return r, fmt.Errorf("the body has more than %d fields: give fewer", fieldsMax)
		}
	}
	for _, name := range ofCaches {
		delete(r.fields, name)
	}
	return r, r.dropArguments()
}

// dropArguments drops the other place from which vLLM takes parameters of caches.
func (r request) dropArguments() error {
	const field = "vllm_xargs"
	given, ok := r.fields[field]
	if !ok || isNull(given) {
		return nil
	}
	var args map[string]json.RawMessage
	if len(given) > argumentBytes || json.Unmarshal(given, &args) != nil {
		return fmt.Errorf("%s is no JSON object of at most %d bytes", field, argumentBytes)
	}
	for _, name := range ofCaches {
		delete(args, name)
	}
	kept, err := json.Marshal(args)
	r.fields[field] = kept
	return err
}

// A spec is where a prompt's cache goes, in LMCache's words. Ports are lists, a port for each rank.
type spec struct {
	Request string   `json:"req_id"`
	Host    string   `json:"receiver_host"`
	Init    []uint16 `json:"receiver_init_port"`
	Alloc   []uint16 `json:"receiver_alloc_port"`
}

// notForPrefill are fields that say how an answer is to look, or how long it is to be: the prefill engine's is read for
// its kv_transfer_params alone.
var notForPrefill = []string{"stream_options", "min_tokens", "n", "best_of", "logprobs", "top_logprobs",
	"return_token_ids", "return_tokens_as_token_ids", "include", "enable_response_messages"}

// forPrefill is the body by which a prefill engine computes the prompt, and sends its cache.
func (r request) forPrefill(name string, d Decode) (pieces, error) {
	fields := maps.Clone(r.fields)
	for _, name := range notForPrefill {
		delete(fields, name)
	}
	params, err := json.Marshal(map[string]any{"do_remote_decode": true, "do_remote_prefill": false,
		"disagg_spec": spec{Request: name, Host: d.Host, Init: d.Init, Alloc: d.Alloc}})
	if err != nil {
		return nil, err
	}
	fields[paramsField] = params
	fields["stream"] = json.RawMessage("false")
	for _, limit := range r.api.limits {
		fields[limit] = json.RawMessage("1")
	}
	if r.api == responses { // The decode engine's is the one to store.
		fields["store"] = json.RawMessage("false")
	}
	return joined(fields), nil
}

// forDecode is the body by which a decode engine answers: with params it takes the cache, without it computes.
func (r request) forDecode(params json.RawMessage) pieces {
	fields := r.fields
	if params != nil {
		fields = maps.Clone(fields)
		fields[paramsField] = params
	}
	return joined(fields)
}

// pieces are a body that is sent, one after the other.
type pieces [][]byte

// joined is a JSON object of fields.
func joined(fields map[string]json.RawMessage) pieces {
	p, before := pieces{}, "{"
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		quoted, _ := json.Marshal(name) // It never fails.
		p = append(p, fmt.Appendf(nil, "%s%s:", before, quoted), fields[name])
		before = ","
	}
	if len(p) == 0 {
		return pieces{[]byte("{}")}
	}
	return append(p, []byte("}"))
}

func (p pieces) len() (n int64) {
	for _, piece := range p {
		n += int64(len(piece))
	}
	return n
}

// pieceBytes bounds bodies that are copied, to be written at once.
const pieceBytes = 16 << 10

func (p pieces) reader() io.ReadCloser {
	if p.len() <= pieceBytes {
		return io.NopCloser(bytes.NewReader(bytes.Join(p, nil)))
	}
	readers := make([]io.Reader, len(p))
	for i, piece := range p {
		readers[i] = bytes.NewReader(piece)
	}
	return io.NopCloser(io.MultiReader(readers...))
}

// answered is what a prefill engine says of the cache that it sent; nil if it sent none.
func answered(body []byte) json.RawMessage {
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
