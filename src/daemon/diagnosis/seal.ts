/** The seal of a server: its state, the key of a static seal, and a pending migration. */
import { existsSync } from 'node:fs'
import type { DiagnosisFinding } from '../../cli/framework/services.ts'
import { readConfig, type SealConfig } from '../../storage/barrier/seal-entries.ts'
import { readStaticKey, type SealSettings, sealSettings, type StaticKeySource } from '../../storage/seal/static-key.ts'
import { messageOf } from '../../platform/errors.ts'
import { fileFault, inspectWith, readRefusal } from './databases.ts'
import { type DiagnosisContext, failure, passed, skipped, warning } from './finding.ts'

export function checkSeal({ config, service }: DiagnosisContext): DiagnosisFinding[] {
  const { server } = config
  if (!server.enabled || !server.secrets) return [skipped('seal', 'this process has no secrets core')]
  const settings = sealSettings(server.seal.type, server.seal.settings)
  const stored = storedConfig(server.storagePath)
  const findings: DiagnosisFinding[] = []
  if (settings.type === 'static') {
    findings.push(keyFinding(settings.current))
    if (settings.previous) findings.push(keyFinding(settings.previous))
  }
  if (stored === 'unreadable') findings.push(skipped('seal/stored', 'the database cannot be read'))
  else if (stored === undefined) {
    const next = 'outpost operator init, or outpost operator snapshot restore -new FILE'
    findings.push(warning('seal/stored', 'the secrets core is not initialized', next))
  } else findings.push(storedFinding(stored, settings))
  const running = service?.checks.find(({ name }) => name === 'seal')
  if (running?.state === 'ok') findings.push(passed('seal/state', running.reason))
  else if (!service) findings.push(skipped('seal/state', 'the service is not running'))
  return findings
}

function storedFinding(stored: SealConfig, settings: SealSettings): DiagnosisFinding {
  const isDisabled = settings.type === 'static' && settings.disabled
  const configuredType = isDisabled ? 'shamir' : settings.type
  const shares = stored.type === 'shamir' ? `, ${stored.threshold} of ${stored.shares} key shares unseal it` : ''
  if (stored.type !== configuredType) {
    const text = `the database has a ${stored.type} seal, the configuration a ${configuredType} seal`
    return warning('seal/stored', text, 'migrate: outpost operator unseal -migrate, or correct server.seal')
  }
  if (settings.type !== 'static' || stored.keyId === undefined)
    return passed('seal/stored', `${stored.type} seal${shares}`)
  const known = [settings.current.id, settings.previous?.id]
  if (known.includes(stored.keyId)) return passed('seal/stored', `static seal with the key "${stored.keyId}"`)
  const text = `the root key is encrypted with the static key "${stored.keyId}", which is not configured`
  return failure('seal/stored', text, 'add it as previous_key with its previous_key_id')
}

function keyFinding(key: StaticKeySource): DiagnosisFinding {
  // Only systemd provides credentials, to the service alone.
  if (key.source.startsWith('credential://') && process.env['CREDENTIALS_DIRECTORY'] === undefined) {
    return skipped('seal/key', `"${key.id}" is a systemd credential, which only the service can read`)
  }
  try {
    readStaticKey(key).key.fill(0)
    return passed('seal/key', `the key "${key.id}" is readable`)
  } catch (error) {
    return failure('seal/key', messageOf(error), 'provide the key, or correct server.seal')
  }
}

function storedConfig(path: string): SealConfig | 'unreadable' | undefined {
  if (!existsSync(path)) return undefined
  if (readRefusal(path) ?? fileFault('seal/stored', path)) return 'unreadable'
  const { entry, findings } = inspectWith(path, false)
  if (findings.length > 0) return 'unreadable'
  try {
    return readConfig({ get: () => entry && { value: entry, sequence: 0 } })
  } catch {
    return 'unreadable'
  }
}
