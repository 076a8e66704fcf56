// Package proxy is the entry point of a disaggregated fleet: an HTTP server for OpenAI's completions, chat completions
// and responses and for Anthropic's messages. For each request it lets a prefill engine compute the prompt, and then a
// decode engine generate the answer with the KV cache that the prefill engine has sent to it meanwhile.
//
//	p, err := proxy.Listen(proxy.Config{Address: "127.0.0.1:8000", Prefills: prefills, Decodes: decodes})
//	...
//	err = p.Close(ctx)
//
// One request, step by step:
//
//	client ──► proxy                 POST /v1/completions
//	           proxy ──► prefill     max_tokens 1 and kv_transfer_params.disagg_spec: where decode's agents are
//	                     prefill ══► decode      the KV cache, by kvferry
//	           proxy ◄── prefill     kv_transfer_params
//	           proxy ──► decode      the client's request with these kv_transfer_params
//	client ◄── proxy ◄── decode      the answer, streamed
//
// A missing cache never causes an error. If the prefill engine fails, is slow or answers without kv_transfer_params,
// and for requests whose cache cannot be sent (api.go says which), the decode engine computes the prompt itself.
//
// The proxy uses the engines of each kind in turn. An engine that cannot be reached is left out for Config.Rest, twice
// as long after each further failure, up to 16 times. If an engine fails a request in another way, the proxy first
// checks the engine's health, because the request may be the cause (fleet.go); it does the same for a decode engine
// that sends nothing for long. After its rest an engine gets one request, which shows whether it works again. A request
// that has reached a decode engine is never sent to another decode engine, because the request may be what ended the
// first one.
//
// Clients are not trusted. The number of connections and of requests in flight, their bytes and their times are bounded
// (Config). The share of one client address leaves room for others (shares.go), and the limits fit into the files that
// the process may open (files.go). kv_transfer_params of a client are dropped, and the name by which both engines know
// a request is drawn here, so that no client can take another client's cache. Requests from web pages of other origins
// are refused. Engines are trusted. The proxy offers no TLS and checks no keys: it passes Authorization on.
package proxy
