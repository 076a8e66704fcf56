// Package proxy is the front of a disaggregated fleet: an HTTP server of OpenAI's completions and chat completions that
// has a prefill engine compute a prompt, and then a decode engine answer, which takes the KV cache that came meanwhile.
//
//	p, err := proxy.Listen(proxy.Config{Address: ":8000", Prefills: prefills, Decodes: decodes})
//	...
//	err = p.Close(ctx)
//
// The prefill engine is asked for one token, with LMCache's kv_transfer_params: disagg_spec names the agents of the
// decode engine that was chosen. What it answers goes to that engine with the client's request, and the answer of that
// is streamed through. The cache is never a reason for an error: where the prefill engine fails, is slow, or says
// nothing of a cache, and for requests whose cache cannot be sent (choice.go says which), the decode engine computes
// the prompt.
//
// Engines take turns. A prefill engine that fails or is slow, and a decode engine that cannot be reached, breaks off or
// hangs, are left out for Config.Rest, twice as long each time they fail again, up to 16 times. Then one request finds
// out. Of a decode engine that got a request no other one is asked it: it may be what ended the first.
//
// Clients are not trusted: connections, requests under way, bytes and times are bounded (Config), kv_transfer_params of
// a client are dropped, and the name by which both engines know a request is drawn here, so that no client can take
// another one's cache. Engines are trusted. There is no TLS and no check of keys: Authorization is passed on.
package proxy
