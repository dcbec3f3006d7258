/**
 * The configuration of an agent from files and flags; with `-dev` also a root token and, unless given, a temporary data directory.
 */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve as absolute } from 'node:path'
import type { AgentOptions } from '../../cli/framework/services.ts'
import { loadConfig, type LoadedConfig } from '../../config/load.ts'
import { checkPolicy } from '../../secrets/policies/policy.ts'

export interface Dev {
  readonly rootToken: string
  /** Set if the data directory is temporary. */
  readonly temporaryDir: string | undefined
}

export function openDev(options: AgentOptions): Dev {
  return {
    rootToken: options.devRootTokenId ?? `op.${randomUUID().replaceAll('-', '')}`,
    temporaryDir: options.dataDir === undefined ? mkdtempSync(join(tmpdir(), 'outpost-dev-')) : undefined,
  }
}

export function configOf(options: AgentOptions, dev: Dev | undefined): LoadedConfig {
  const dataDir = options.dataDir === undefined ? dev?.temporaryDir : absolute(options.dataDir)
  return loadConfig({
    paths: options.config,
    dev: options.dev,
    checkPolicy,
    tlsFiles: { isStarting: true },
    flags: {
      ...(options.httpPort === undefined ? {} : { httpPort: options.httpPort }),
      ...(options.clusterPort === undefined ? {} : { clusterPort: options.clusterPort }),
      ...(dataDir === undefined ? {} : { dataDir }),
      ...(options.nodeId === undefined ? {} : { nodeId: options.nodeId }),
      ...(options.logLevel === undefined ? {} : { logLevel: options.logLevel }),
    },
  })
}

/** Removes the temporary data directory. */
export function removeTemporary(dev: Dev | undefined): void {
  if (dev?.temporaryDir) rmSync(dev.temporaryDir, { recursive: true, force: true })
}
