package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/proxy"
)

func newProxyCommand() *cobra.Command {
	to := proxy.Defaults()
	var prefills, decodes []string
	var level slog.Level
	var asJSON bool
	var drain time.Duration
	body, total := config.Size(to.MaxBodyBytes), config.Size(to.MaxTotalBytes)
	cmd := &cobra.Command{
		Use:   "proxy --prefill URL --decode URL=HOST:INIT:ALLOC",
		Short: "Serve OpenAI's completions by prefill and decode engines",
		Long: `proxy is the front of vLLM engines with KvferryConnector (docs/vllm.md). A prefill
engine computes the prompt of a request, with kv_transfer_params that name the agents
of a decode engine, and that engine answers; the answer is streamed through. Engines
take turns. That is so of POST /v1/completions, /v1/chat/completions, /v1/responses and
/v1/messages.

A prompt never fails because of a cache: what no prefill engine does in time, or can do,
the decode engine computes. Without --prefill it computes all prompts. It also computes
those of requests of which there is no single cache to send: several prompts or choices
(n), beam search, echo, prompt_logprobs, prompt_embeds, prompts that are cut off to fit
the length of the answer, and tools that the engine runs.

--decode says where the engine's agents receive, as their files do: pd_peer_host,
pd_peer_init_port and pd_peer_alloc_port. Several ranks have ports with commas.

POST /tokenize, /detokenize and /v1/messages/count_tokens, GET /v1/models and /version
are a decode engine's. GET /health and /ping ask the engines, and answer 200 if a decode
engine does. GET /metrics is in Prometheus' format. When the proxy serves it prints one
line of JSON.

There is no TLS and no login, so the proxy listens on this host alone unless --listen
says otherwise: clients come over a trusted network, or through a server that ends TLS.
Bodies must be application/json, and pages of other origins are refused. The requests
and the bodies of one address leave room for others'; behind another proxy all clients
are one address.

An engine that cannot be reached is left out for --rest, and longer when it fails again.
One that fails, breaks off or is late is asked for its health first, since a request
may be the reason. A stream that breaks off ends with an error.

SIGTERM and SIGINT let requests under way end, for --drain at the most: less than the
30 s after which Kubernetes kills what it stops, so that clients are told. For a longer
one raise terminationGracePeriodSeconds, too. A second signal ends it at once.`,
		Example: `  kvferry proxy --listen :8000 --prefill http://10.0.0.1:8100 \
    --decode http://10.0.0.2:8200=10.0.0.2:7300:7400`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, text := range prefills {
				engine, err := proxy.ParseEngine(text)
				if err != nil {
					return usageError{err}
				}
				to.Prefills = append(to.Prefills, engine)
			}
			for _, text := range decodes {
				engine, err := proxy.ParseDecode(text)
				if err != nil {
					return usageError{err}
				}
				to.Decodes = append(to.Decodes, engine)
			}
			if len(to.Decodes) == 0 {
				return usagef("name a decode engine with --decode")
			}
			to.MaxBodyBytes, to.MaxTotalBytes = int64(body), int64(total)
			if err := to.Check(); err != nil {
				return usageError{err}
			}
			to.Log = newLogger(cmd.ErrOrStderr(), config.Log{Level: level, JSON: asJSON})
			p, err := proxy.Listen(to)
			if err != nil {
				return err
			}
			line := map[string]any{"address": p.Addr().String(), "prefills": len(to.Prefills), "decodes": len(to.Decodes)}
			if err := json.NewEncoder(cmd.OutOrStdout()).Encode(line); err != nil {
				return errors.Join(err, p.Close(cmd.Context()))
			}
			<-cmd.Context().Done()
			to.Log.Info("draining", "remedy", "a second signal ends it at once")
			ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), drain)
			defer cancel()
			if err := p.Close(ctx); err != nil {
				to.Log.Warn("not all requests have ended", "err", err)
			}
			to.Log.Info("stopped", "requests", p.Stats())
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&to.Address, "listen", to.Address, "the address to serve clients at, host:port; :8000 is every interface")
	f.StringArrayVar(&prefills, "prefill", nil, "a prefill engine; several times for several")
	f.StringArrayVar(&decodes, "decode", nil, "a decode engine and its agents; several times for several")
	f.IntVar(&to.MaxConnections, "connections", to.MaxConnections,
		"how many connections there may be (default 4096, or as many as the limit of open files allows)")
	f.IntVar(&to.MaxRequests, "requests", to.MaxRequests,
		"how many requests may be under way, of one address that is alone half of them (default 2048, or as "+
			"many as the limit of open files allows)")
	f.Var(&body, "body", "how long the body of a request may be")
	f.Var(&total, "bodies", "how long all bodies under way may be together")
	f.DurationVar(&to.ReadTimeout, "read-timeout", to.ReadTimeout, "for a request to come whole")
	f.DurationVar(&to.WriteTimeout, "write-timeout", to.WriteTimeout,
		"how long an answer may wait for its client in all, if that takes less than 4 KiB/s")
	f.DurationVar(&to.PrefillTimeout, "prefill-timeout", to.PrefillTimeout, "for a prefill engine; then decode computes")
	f.DurationVar(&to.Timeout, "timeout", to.Timeout, "for all of a request")
	f.DurationVar(&to.SilenceTimeout, "silence", to.SilenceTimeout, "of a decode engine that is to answer; then its health is asked")
	f.DurationVar(&to.RestTime, "rest", to.RestTime, "how long an engine that failed is left out at first; up to 16 times that")
	f.DurationVar(&drain, "drain", 20*time.Second, "for requests under way, when it is told to stop")
	f.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	f.BoolVar(&asJSON, "log-json", false, "log JSON instead of text")
	return cmd
}
