// Package proxy is the entry point of a disaggregated fleet: an HTTP server for OpenAI's completions, chat completions
// and responses and for Anthropic's messages. For each request a prefill engine computes the prompt and sends the KV
// cache to a decode engine; then the decode engine generates the answer.
//
//	p, err := proxy.Listen(proxy.Config{Address: "127.0.0.1:8000", Prefills: prefills, Decodes: decodes})
//	...
//	err = p.Close(ctx)
//
// A request, step by step:
//
//	client ──► proxy                 POST /v1/completions
//	           proxy ──► prefill     max_tokens 1 and kv_transfer_params.disagg_spec: where decode's agents are
//	                     prefill ══► decode      the KV cache, by kvferry
//	           proxy ◄── prefill     kv_transfer_params
//	           proxy ──► decode      the client's request with these kv_transfer_params
//	client ◄── proxy ◄── decode      the answer, streamed
//
// A missing cache never causes an error. If the prefill engine fails, is slow or answers without kv_transfer_params, or
// if the cache of the request cannot be sent (see uncachedField in api.go), the decode engine computes the prompt
// itself.
//
// The proxy uses the engines of each kind in turn. An engine that cannot be reached is left out for Config.RestTime,
// twice as long after each further failure, up to 16 times. If an engine fails a request in another way, the proxy
// first checks the engine's health, because the request may be the cause (fleet.go). The proxy also checks the health
// of a decode engine that sends nothing for long. After a rest an engine gets a single request, which shows whether the
// engine works again. A request that has reached a decode engine is never sent to a second decode engine, because the
// request may have caused the first engine to fail.
//
// Clients are not trusted. The number of connections and of requests in flight, their bytes and their times are bounded
// (Config). The share of each client address leaves room for further clients (shares.go), and the limits fit into the
// files that the process may open (files.go). kv_transfer_params of a client are dropped, and the proxy draws a random
// name by which both engines know a request, so that no client can take another client's cache. Requests from web pages
// of a different origin are refused. Engines are trusted. The proxy offers no TLS and checks no keys, but passes
// Authorization on.
package proxy
