// Package proxy is the front of a disaggregated fleet: an HTTP server of OpenAI's completions, chat completions and
// responses and of Anthropic's messages, that has a prefill engine compute a prompt, and then a decode engine answer,
// which takes the KV cache that came meanwhile.
//
//	p, err := proxy.Listen(proxy.Config{Address: "127.0.0.1:8000", Prefills: prefills, Decodes: decodes})
//	...
//	err = p.Close(ctx)
//
// The prefill engine is asked for one token, with LMCache's kv_transfer_params: disagg_spec names the agents of the
// decode engine that was chosen. What it answers goes to that engine with the client's request, and the answer of that
// is streamed through. The cache is never a reason for an error: where the prefill engine fails, is slow, or says
// nothing of a cache, and for requests whose cache cannot be sent (api.go says which), the decode engine computes the
// prompt.
//
// Engines take turns. An engine that cannot be reached is left out for Config.Rest, twice as long each time it fails
// again, up to 16 times. An engine that fails a request otherwise is asked for its health first, because the request
// may be the reason (fleet.go), and so is a decode engine that says nothing for long. When an engine has rested, one
// request finds out whether it is back. Of a decode engine that got a request no other one is asked it: it may be what
// ended the first.
//
// Clients are not trusted. Connections, requests under way, bytes and times are bounded (Config); what one address may
// have of them leaves room for others (shares.go), and all of it fits into the files that the process may open
// (files.go). kv_transfer_params of a client are dropped, and the name by which both engines know a request is drawn
// here, so that no client can take another one's cache. Pages of other origins compute nothing. Engines are trusted.
// There is no TLS and no check of keys: Authorization is passed on.
package proxy
