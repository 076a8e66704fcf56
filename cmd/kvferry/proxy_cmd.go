package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/buildinfo"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/proxy"
	"github.com/kvferry/kvferry/runtime/tracing"
)

func newProxyCommand() *cobra.Command {
	cfg := proxy.Defaults()
	var prefills, decodes []string
	var level slog.Level
	var asJSON bool
	var drain time.Duration
	var traces config.Trace
	body, total := config.Size(cfg.MaxBodyBytes), config.Size(cfg.MaxTotalBytes)
	cmd := &cobra.Command{
		Use:   "proxy --prefill URL --decode URL=HOST:INIT:ALLOC",
		Short: "Serve the OpenAI API with prefill and decode engines",
		Long: `proxy serves clients with vLLM engines that use KvferryConnector (docs/vllm.md). For POST
/v1/completions, /v1/chat/completions, /v1/responses and /v1/messages, a prefill engine
computes the prompt and sends the KV cache to the agents of a decode engine, and the
decode engine generates the answer, which the proxy streams to the client. The proxy
chooses the engines in turn.

A request never fails because of the cache: if no prefill engine can compute the prompt
in time, the decode engine computes it. Without --prefill, the decode engines compute all
prompts. They also compute the prompts of requests that do not have a single cache to
send: requests with several prompts or choices (n), beam search, echo, prompt_logprobs,
prompt_embeds, truncated prompts, or tools that the engine runs.

--decode gives the URL of a decode engine and the addresses at which its agents receive,
as in the agents' files: pd_peer_host, pd_peer_init_port and pd_peer_alloc_port. For
several ranks, separate the ports by commas.

POST /tokenize, /detokenize and /v1/messages/count_tokens, GET /v1/models and GET /version
are forwarded to a decode engine. GET /health and GET /ping query the engines and return
200 if a decode engine is healthy. GET /metrics has the format of Prometheus. When the
proxy serves, it prints one line of JSON.

With --trace-endpoint, the requests that come with a sampled traceparent, and a share of the
others (--trace-ratio), are traced, and the engines continue the traces.

With --cert and --key, clients connect by HTTPS; the files are read again within 10 s after
they have changed, and on SIGHUP. Engines may have https addresses, with certificates of
--engine-ca. By default the proxy has no login: it passes the header Authorization to the
engines, which check it (vLLM's --api-key).

With --api-keys, only clients with a listed key are served, and each request gets the
cache_salt of its key, whatever the client wrote. So a key decides to which tenant a request
belongs. The file is read again within 10 s after it has changed, and on SIGHUP:

  keys:
    - {sha256: HEX, salt: SALT}  # printf %s "$KEY" | sha256sum; printf %s "$SALT" | kvferry tenant
    - {sha256: HEX}              # requests without a salt

With --engine-key, engines get the key in that file instead of the client's.

By default the proxy listens only on this host. Bodies must have
the type application/json, and requests from web pages of other origins are refused. One
client address cannot take all requests and all memory; behind another proxy, all clients
have the same address.

An engine that cannot be reached is not used for the time of --rest, and longer if it
fails again. An engine that fails, breaks off or is late stays in use if its health check
succeeds, because the request may be the cause. A stream that breaks off ends with an
error.

SIGTERM and SIGINT let the requests in progress finish, for at most --drain. The default
is less than the 30 s after which Kubernetes kills a pod, so that clients receive an
error. For a longer time, also raise terminationGracePeriodSeconds. A second signal ends
the proxy at once.`,
		Example: `  kvferry proxy --listen :8000 --prefill http://10.0.0.1:8100 \
    --decode http://10.0.0.2:8200=10.0.0.2:7300:7400
  kvferry proxy --listen :8443 --cert tls.crt --key tls.key --engine-ca ca.crt \
    --prefill https://prefill.example:8100 --decode https://decode.example:8200=10.0.0.2:7300:7400`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, text := range prefills {
				engine, err := proxy.ParseEngine(text)
				if err != nil {
					return usageError{err}
				}
				cfg.Prefills = append(cfg.Prefills, engine)
			}
			for _, text := range decodes {
				engine, err := proxy.ParseDecode(text)
				if err != nil {
					return usageError{err}
				}
				cfg.Decodes = append(cfg.Decodes, engine)
			}
			if len(cfg.Decodes) == 0 {
				return usagef("--decode is required: give at least one decode engine")
			}
			cfg.MaxBodyBytes, cfg.MaxTotalBytes = int64(body), int64(total)
			if err := cfg.Check(); err != nil {
				return usageError{err}
			}
			cfg.Log = newLogger(cmd.ErrOrStderr(), level, asJSON)
			tracer, err := openProxyTracer(&traces, cfg.Log)
			if err != nil {
				return err
			}
			if tracer != nil {
				cfg.Tracer = tracer
			}
			defer func() { _ = closeTracer(cmd.Context(), tracer) }()
			p, err := proxy.Listen(cfg)
			if err != nil {
				return err
			}
			defer reloadOnHangup(p.ReloadFiles)()
			line := map[string]any{"address": p.Addr().String(), "prefills": len(cfg.Prefills), "decodes": len(cfg.Decodes)}
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(line); err != nil {
				return errors.Join(err, p.Close(cmd.Context()))
			}
			<-cmd.Context().Done()
			cfg.Log.Info("draining", "remedy", "a second signal ends it at once")
			ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), drain)
			defer cancel()
			if err := p.Close(ctx); err != nil {
				cfg.Log.Warn("some requests had not ended after the drain time", "err", err)
			}
			cfg.Log.Info("stopped", "requests", p.Stats())
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Address, "listen", cfg.Address, "the address for clients, host:port; :8000 listens on every interface")
	f.StringArrayVar(&prefills, "prefill", nil, "the URL of a prefill engine; may be repeated")
	f.StringArrayVar(&decodes, "decode", nil, "a decode engine with the addresses of its agents; may be repeated")
	f.StringVar(&cfg.Cert, "cert", "", "the certificate for clients, a PEM file (default: clients connect without TLS)")
	f.StringVar(&cfg.Key, "key", "", "the key of the certificate, a PEM file")
	f.StringVar(&cfg.EngineCA, "engine-ca", "", "the authorities of engines with https addresses, a PEM file (default: those of the system)")
	f.StringVar(&cfg.APIKeys, "api-keys", "",
		"the keys of clients and their cache salts, a YAML file (default: clients need no key)")
	f.StringVar(&cfg.EngineKey, "engine-key", "", "a file with the key for engines (default: engines get the client's key)")
	f.IntVar(&cfg.MaxConnections, "connections", cfg.MaxConnections,
		"the maximum number of connections (default 4096, or as many as the limit of open files allows)")
	f.IntVar(&cfg.MaxRequests, "requests", cfg.MaxRequests,
		"the maximum number of requests in progress; a single client address may have half of them (default 2048, or as "+
			"many as the limit of open files allows)")
	f.Var(&body, "body", "the maximum size of a request's body")
	f.Var(&total, "bodies", "the maximum total size of the bodies of all requests in progress")
	f.DurationVar(&cfg.ReadTimeout, "read-timeout", cfg.ReadTimeout, "the time limit for reading a request")
	f.DurationVar(&cfg.WriteTimeout, "write-timeout", cfg.WriteTimeout,
		"the total time that an answer may wait for a client that reads less than 4 KiB/s")
	f.DurationVar(&cfg.PrefillTimeout, "prefill-timeout", cfg.PrefillTimeout, "the time limit for the prefill; then decode computes")
	f.DurationVar(&cfg.Timeout, "timeout", cfg.Timeout, "the time limit for a whole request")
	f.DurationVar(&cfg.SilenceTimeout, "silence", cfg.SilenceTimeout,
		"the time without output after which the proxy checks the health of a decode engine")
	f.DurationVar(&cfg.RestTime, "rest", cfg.RestTime,
		"the time for which a failed engine is not used; repeated failures extend it up to 16 times")
	f.DurationVar(&drain, "drain", 20*time.Second, "the time limit for requests in progress when the proxy stops")
	f.StringVar(&traces.Endpoint, "trace-endpoint", "",
		"the URL of an OpenTelemetry collector for the spans of traced requests (default: OTEL_EXPORTER_OTLP_ENDPOINT, or none)")
	f.Float64Var(&traces.Ratio, "trace-ratio", 0, "the share of the requests without traceparent that begin a trace, 0 to 1")
	f.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	f.BoolVar(&asJSON, "log-json", false, "log JSON instead of text")
	return cmd
}

// openProxyTracer opens the export of a proxy's spans, or returns nil if there is no collector.
func openProxyTracer(c *config.Trace, log *slog.Logger) (*tracing.Tracer, error) {
	if c.Endpoint != "" {
		if remedy := config.CheckCollector(c.Endpoint); remedy != "" {
			return nil, usagef("--trace-endpoint is %q: %s", c.Endpoint, remedy)
		}
	}
	if !(c.Ratio >= 0 && c.Ratio <= 1) {
		return nil, usagef("--trace-ratio is %v: write a number from 0 to 1", c.Ratio)
	}
	tracer, err := tracing.Open(tracing.Config{Endpoint: c.Endpoint, Ratio: c.Ratio, Service: "kvferry-proxy",
		Version: buildinfo.Current().Version, Log: log})
	if err != nil {
		return nil, usageError{err}
	}
	return tracer, nil
}
