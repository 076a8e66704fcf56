package config

import (
	"go.yaml.in/yaml/v4"
)

// The kinds of this file are for features that this version does not have. Their keys are accepted at the off value,
// so that a complete LMCache file needs no edits, and refused at all further values, because a user would discover a
// setting without effect only in production.

const unsupportedPrefix = "not supported by this version: "

// offSwitchKind returns a kind for a switch that must be off.
func offSwitchKind(instead string) kind {
	return kind{takes: "false", read: func(_ *draft, n *yaml.Node) (Code, string) {
		s, remedy := unquotedText(n)
		if remedy != "" {
			return Type, remedy
		}
		on, err := parseBool(s)
		if err != nil {
			return Type, err.Error()
		}
		if on {
			return Unsupported, unsupportedPrefix + instead
		}
		return codeOK, ""
	}}
}

// unsetKind returns a kind for a value that must not be given, or must be null, an empty list, or 0 for a number.
func unsetKind(instead string) kind {
	return kind{takes: "unset", read: func(_ *draft, n *yaml.Node) (Code, string) {
		if n.Kind == yaml.SequenceNode && len(n.Content) == 0 || n.Kind == yaml.ScalarNode && n.Value == "0" {
			return codeOK, ""
		}
		return Unsupported, unsupportedPrefix + instead
	}}
}

const oldProtocolRemedy = "it belongs to LMCache's first transfer protocol; remove it and set "

// LMCacheRelease is the LMCache release from which the names and defaults in the tables of keys are taken.
const LMCacheRelease = "0.5.6"

// unsupportedKeys are LMCache's keys for modes that this version does not have.
var unsupportedKeys = []key{
	{name: "nixl_receiver_host", kind: unsetKind(oldProtocolRemedy + "pd_peer_host"),
		doc: "the transfer of LMCache before 0.3, on one port"},
	{name: "nixl_receiver_port", kind: unsetKind(oldProtocolRemedy + "pd_peer_init_port and pd_peer_alloc_port"),
		doc: "the transfer of LMCache before 0.3, on one port"},
	{name: "nixl_peer_port", kind: unsetKind(oldProtocolRemedy + "pd_peer_init_port and pd_peer_alloc_port"),
		doc: "the transfer of LMCache before 0.3, on one port"},
}

// ignoredKeys are LMCache's keys for parts of LMCache that do not concern this transfer: local tiers, lookups, the
// controller and the HTTP server. Their values are not checked.
var ignoredKeys = []string{
	"app_id", "audit_actual_remote_url", "blend_check_layers", "blend_min_tokens", "blend_recompute_ratios",
	"blend_special_str", "blend_thresholds", "blocking_timeout_secs", "cache_policy",
	"chunk_statistics_auto_exit_target_unique_chunks", "chunk_statistics_auto_exit_timeout_hours",
	"chunk_statistics_auto_start_statistics", "chunk_statistics_strategy",
	"enable_async_loading", "enable_blending", "enable_chunk_statistics",
	"enable_hidden_state_cache", "enable_kv_events", "enable_lazy_memory_allocator",
	"enable_scheduler_bypass_lookup", "external_backends", "external_lookup_client", "gds_backend",
	"gds_buffer_size", "gds_path", "gds_path_sharding", "hidden_state_layers", "hidden_states_retrieve_mode",
	"hit_miss_ratio", "internal_api_server_enabled", "internal_api_server_host",
	"internal_api_server_include_index_list", "internal_api_server_port_start",
	"internal_api_server_socket_path_prefix", "lazy_memory_expand_trigger_ratio", "lazy_memory_initial_ratio",
	"lazy_memory_safe_size", "lazy_memory_step_ratio",
	"lmcache_worker_heartbeat_delay_time", "lmcache_worker_ids",
	"local_cpu", "local_cpu_use_hugepages", "local_disk",
	"local_disk_path_sharding", "lookup_server_worker_ids", "lookup_timeout_ms", "maru_path", "maru_pool_size",
	"max_hidden_state_cpu_size", "max_local_disk_size", "min_retrieve_tokens", "mp_host",
	"mp_port", "nixl_backends", "numa_mode",
	"pin_check_interval_sec", "pin_timeout_sec", "plugin_locations", "pre_caching_hash_algorithm",
	"priority_limit", "py_enable_gc", "remote_config_url", "remote_serde", "remote_storage_plugins", "remote_url",
	"reserve_local_cpu_size", "run_script_api_enabled", "runtime_plugin_locations", "save_decode_cache",
	"script_allowed_imports", "storage_plugins", "use_gds", "use_gpu_connector_v3",
}

// ignoredOtherKeys are further ignored keys, from earlier and later releases of LMCache and from LMCache-Ascend.
var ignoredOtherKeys = []string{
	"ascend_bundle_multi_spec", "ascend_flatten_multi_spec", "ascend_skip_state_groups", "config_file",
	"cost_aware_ewma_alpha", "cost_aware_half_life_seconds", "cufile_buffer_size",
	"enable_chunk_hashes_return", "enable_nixl",
	"error_handling", "lookup_hashes_cache_size", "nixl_enable_gc", "store_async",
	"store_async_max_queue_size", "weka_path",
}

// ignoredExtraKeys are LMCache's keys below extra_config that have no effect here, as the release of LMCache reads
// them.
var ignoredExtraKeys = []string{
	"audit_actual_remote_url", "audit_backend_enabled", "audit_calc_checksum", "audit_exclude_cmds",
	"audit_verify_checksum", "aws_access_key_id", "aws_secret_access_key", "azure_account_key", "azure_account_url",
	"azure_connection_string", "azure_sas_token", "chunk_statistics_async_preprocess_chunks",
	"chunk_statistics_async_queue_capacity", "chunk_statistics_file_max_count", "chunk_statistics_file_output_dir",
	"chunk_statistics_file_rotation_size", "chunk_statistics_mem_bf_expected_chunks",
	"chunk_statistics_mem_bf_false_positive_rate", "connection_timeout", "controller_packages", "dax.device_path",
	"dax.max_dax_size", "dax.retrieve_staging_slab_bytes", "disable_tls", "disabled_controllers", "disk_io_threads",
	"enable_cache_usage_details_in_response", "enable_nixl_storage", "enable_sparse",
	"first_rank_max_local_cpu_size", "force_store_wait", "fs_base_path", "fs_connector_read_ahead_size",
	"fs_connector_relative_tmp_dir", "fs_connector_use_odirect", "full_sync_max_retry_count",
	"full_sync_retry_delay_s", "full_sync_startup_delay_s", "gpu_to_numa_mapping", "heartbeat_url",
	"hf3fs_base_path", "hf3fs_mount_point", "infinistore_link_type", "internal_api_server_access_log",
	"internal_api_server_log_level", "lmcache.mp.lazy_offload", "lmcache_rpc_port", "local_cpu.pinned_align_bytes",
	"lookup_backoff_time", "mooncake_prefer_local_alloc", "nixl_async_put", "nixl_backend", "nixl_backend_params",
	"nixl_enable_prog_thread", "nixl_endpoint_list", "nixl_path", "nixl_path_sharding", "nixl_pool_size",
	"nixl_presence_cache", "nixl_presence_cache_only", "nixl_sync_mode", "nixl_use_hugepages",
	"p2p_socket_recv_timeout_ms", "p2p_socket_send_timeout_ms", "password", "redis_url",
	"remote_enable_mla_worker_id_as0", "remote_storage_plugin.redis.redis_url", "request_timeout",
	"resp_num_threads", "rust_raw_block.block_align", "rust_raw_block.device_path", "rust_raw_block.io_engine",
	"rust_raw_block.use_iouring", "rust_raw_block.use_uring", "s3_enable_s3express", "s3_num_io_threads",
	"s3_prefer_http2", "s3_region", "sagemaker_hyperpod_bucket", "sagemaker_hyperpod_max_lease_size_mb",
	"sagemaker_hyperpod_shared_memory_name", "sagemaker_hyperpod_use_https", "save_chunk_meta",
	"save_only_first_rank", "shm_name", "storage_root_dir", "tls_enable", "transfer_timeout", "use_direct_io",
	"use_exists_sync", "use_odirect", "username", "valkey_database", "valkey_enable_ttl", "valkey_mode",
	"valkey_num_workers", "valkey_password", "valkey_sync_num_workers", "valkey_ttl_sec", "valkey_username",
	"worker_socket_recv_timeout_ms", "worker_socket_send_timeout_ms",
}

// pluginGroups are the prefixes of the keys of plug-ins below extra_config. Each plug-in defines the remainder of the
// key.
var pluginGroups = []string{"storage_plugin.", "remote_storage_plugin.", "runtime_plugin."}
