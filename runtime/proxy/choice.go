package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// A request is what a client wants, as it says it: fields that are not known here go to the engines as they came.
// Values are parts of the body that came: bodies may be long, and many, and are not copied.
type request struct {
	fields map[string]json.RawMessage
	chat   bool
}

// fieldsMax bounds the fields of a request: each takes memory beside its bytes.
const fieldsMax = 256

// argumentBytes bounds vllm_xargs.
const argumentBytes = 64 << 10

const paramsField = "kv_transfer_params"

// parse reads a body. What a client says of caches is left out: it would name agents, or another request's cache.
func parse(body []byte, chat bool) (request, error) {
	r := request{chat: chat, fields: map[string]json.RawMessage{}}
	rest, isObject := bytes.CutPrefix(bytes.TrimLeft(body, space), []byte("{"))
	if !json.Valid(body) || !isObject {
		return r, errors.New("the body is no JSON object")
	}
	for count := 0; ; count++ {
		rest = bytes.TrimLeft(rest, space+",")
		if rest[0] == '}' {
			break
		}
		if count >= fieldsMax {
			return r, fmt.Errorf("the body has more than %d fields: give fewer", fieldsMax)
		}
		var name string
		end := valueEnd(rest)
		if err := json.Unmarshal(rest[:end], &name); err != nil {
			return r, err
		}
		rest = bytes.TrimLeft(rest[end:], space+":")
		end = valueEnd(rest)
		r.fields[name] = json.RawMessage(rest[:end:end])
		rest = rest[end:]
	}
	delete(r.fields, paramsField)
	return r, r.withoutArgument()
}

// space is what JSON has between values.
const space = " \t\r\n"

// valueEnd says where the first value of valid JSON ends. Something follows it.
func valueEnd(text []byte) int {
	depth, quoted := 0, false
	for i := 0; ; i++ {
		c := text[i]
		switch {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			if !quoted && depth == 0 {
				return i + 1
			}
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 { // The end of what it is in.
				return i
			}
		case depth == 0 && strings.IndexByte(space+",", c) >= 0:
			return i
		}
	}
}

// withoutArgument drops the other place from which vLLM takes parameters of caches.
func (r request) withoutArgument() error {
	const field = "vllm_xargs"
	given, ok := r.fields[field]
	if !ok || isNull(given) {
		return nil
	}
	var args map[string]json.RawMessage
	if len(given) > argumentBytes || json.Unmarshal(given, &args) != nil {
		return fmt.Errorf("%s is no JSON object of at most %d bytes", field, argumentBytes)
	}
	delete(args, paramsField)
	kept, err := json.Marshal(args)
	r.fields[field] = kept
	return err
}

// computed says why a request's cache cannot be sent; "" if it can. One cache goes to one sequence of the decode
// engine: several prompts, or several sequences of one, would wait for it in vain. Who wants to know what the model
// thinks of the prompt itself has it computed.
func (r request) computed() string {
	if !r.chat {
		switch prompt := r.fields["prompt"]; {
		case isText(prompt):
		case isNumbers(prompt):
		default:
			return "prompt"
		}
	}
	for _, name := range []string{"n", "best_of"} {
		if given, ok := r.fields[name]; ok && !isNull(given) && string(given) != "1" {
			return name
		}
	}
	for _, name := range []string{"use_beam_search", "echo", "prompt_logprobs", "prompt_embeds"} {
		if given, ok := r.fields[name]; ok && !isNull(given) && string(given) != "false" {
			return name
		}
	}
	return ""
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
	"return_token_ids", "return_tokens_as_token_ids"}

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
	fields["max_tokens"] = json.RawMessage("1")
	if r.chat {
		fields["max_completion_tokens"] = json.RawMessage("1")
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

func isNull(value json.RawMessage) bool { return string(value) == "null" }

func isText(value json.RawMessage) bool { return len(value) > 0 && value[0] == '"' }

// isNumbers says whether value is a list of numbers: the tokens of one prompt. Lists of texts or of lists are several.
func isNumbers(value json.RawMessage) bool {
	inner, ok := bytes.CutPrefix(value, []byte("["))
	inner = bytes.TrimLeft(inner, " \t\r\n")
	return ok && len(inner) > 0 && inner[0] >= '0' && inner[0] <= '9'
}
