package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// An endpoint is an endpoint at which clients request generated text.
type endpoint struct {
	path string
	// limitFields are the fields that bound the length of the answer. There is at least one.
	limitFields []string
	// hasPromptField reports whether the prompt is the field "prompt". Otherwise the prompt is a list of messages.
	hasPromptField bool
}

var (
	completions = &endpoint{path: "/v1/completions", limitFields: []string{"max_tokens"}, hasPromptField: true}
	chat        = &endpoint{path: "/v1/chat/completions", limitFields: []string{"max_tokens", "max_completion_tokens"}}
	responses   = &endpoint{path: "/v1/responses", limitFields: []string{"max_output_tokens"}}
	messages    = &endpoint{path: "/v1/messages", limitFields: []string{"max_tokens"}}
)

var endpoints = []*endpoint{completions, chat, responses, messages}

// checkSupported returns an error if no engine can answer the request through a proxy.
func (r request) checkSupported() error {
	if r.endpoint != responses {
		return nil
	}
	if given, ok := r.fields["previous_response_id"]; ok && !isNull(given) {
		return errors.New("previous_response_id: the proxy does not know which engine stored a response: send the whole " +
			"conversation in input")
	}
	if given, ok := r.fields["background"]; ok && !isNull(given) && string(given) != "false" {
		return fmt.Errorf("background is %.20s, but later the proxy does not know which engine has the response: give false",
			given)
	}
	return nil
}

// uncachedField returns the name of the field because of which the decode engine has to compute the prompt, or "" if a
// prefill engine may. A cache goes to a single sequence of the decode engine, which would wait in vain for the caches
// of several prompts, or of several sequences of the same prompt. For log probabilities of the prompt itself the decode
// engine has to compute the prompt. And the names of KV chunks are made of token ids, which cannot express embeddings.
func (r request) uncachedField() string {
	if r.endpoint.hasPromptField {
		if prompt := r.fields["prompt"]; !isText(prompt) && !isNumbers(prompt) {
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
	// Both engines must see the same prompt. With these fields, how much is cut off depends on the length of the
	// answer.
	if given := r.fields["truncate_prompt_tokens"]; len(given) > 0 && given[0] == '-' {
		return "truncate_prompt_tokens"
	}
	if given, ok := r.fields["truncation"]; ok && !isNull(given) && string(given) != `"disabled"` {
		return "truncation"
	}
	// With tools that the engine itself runs, a request has several prompts in sequence.
	if r.endpoint == responses && !allFunctions(r.fields["tools"]) {
		return "tools"
	}
	for _, name := range []string{"messages", "input", "system"} {
		if hasEmbeddings(r.fields[name], contentDepth) {
			return "prompt_embeds"
		}
	}
	return ""
}

// contentDepth bounds how deep the content of messages is inspected. Results of tools have the deepest content that
// engines accept.
const contentDepth = 4

// hasEmbeddings reports whether a list of messages or of content parts contains embeddings, or is deeper than
// contentDepth.
func hasEmbeddings(list []byte, depth int) (has bool) {
	for item := range jsonItems(list) {
		for name, value := range jsonFields(item) {
			switch {
			case isName(name, "prompt_embeds"), isName(name, "type") && isName(value, "prompt_embeds"):
				return true
			case !isName(name, "content") || value[0] != '[':
			case depth == 1 || hasEmbeddings(value, depth-1):
				return true
			}
		}
	}
	return false
}

// allFunctions reports whether a list contains only tools that the client itself runs.
func allFunctions(tools []byte) bool {
	for tool := range jsonItems(tools) {
		isFunction := false
		for name, value := range jsonFields(tool) {
			if isName(name, "type") {
				isFunction = isName(value, "function")
			}
		}
		if !isFunction {
			return false
		}
	}
	return true
}

// jsonItems yields the values of a JSON array in valid JSON, and nothing if the value is not an array.
func jsonItems(array []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		rest, ok := bytes.CutPrefix(array, []byte("["))
		for ok {
			rest = bytes.TrimLeft(rest, space+",")
			if rest[0] == ']' {
				return
			}
			end := valueEnd(rest)
			if !yield(rest[:end:end]) {
				return
			}
			rest = rest[end:]
		}
	}
}

// jsonFields yields the names, still quoted, and the values of a JSON object in valid JSON, and nothing if the value is
// not an object.
func jsonFields(object []byte) func(yield func(name, value []byte) bool) {
	return func(yield func(name, value []byte) bool) {
		rest, ok := bytes.CutPrefix(object, []byte("{"))
		for ok {
			rest = bytes.TrimLeft(rest, space+",")
			if rest[0] == '}' {
				return
			}
			end := valueEnd(rest)
			name := rest[:end]
			rest = bytes.TrimLeft(rest[end:], space+":")
			end = valueEnd(rest)
			if !yield(name, rest[:end:end]) {
				return
			}
			rest = rest[end:]
		}
	}
}

// space is the whitespace between JSON values.
const space = " \t\r\n"

// valueEnd returns where the first value of valid JSON ends. The value must be followed by at least one byte.
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
			} else if depth < 0 { // the end of the enclosing value
				return i
			}
		case depth == 0 && strings.IndexByte(space+",", c) >= 0:
			return i
		}
	}
}

// isName reports whether a quoted JSON string equals name, even if the string contains escapes.
func isName(quoted []byte, name string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return len(quoted) == len(name)+2 && quoted[0] == '"' && string(quoted[1:len(quoted)-1]) == name
	}
	var text string
	return len(quoted) <= 12*len(name) && json.Unmarshal(quoted, &text) == nil && text == name
}

func isNull(value json.RawMessage) bool { return string(value) == "null" }

func isText(value json.RawMessage) bool { return len(value) > 0 && value[0] == '"' }

// isNumbers reports whether value is a list of numbers: the tokens of a single prompt. Lists of texts or lists are
// several prompts.
func isNumbers(value json.RawMessage) bool {
	inner, ok := bytes.CutPrefix(value, []byte("["))
	inner = bytes.TrimLeft(inner, space)
	return ok && len(inner) > 0 && inner[0] >= '0' && inner[0] <= '9'
}
