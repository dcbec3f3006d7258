/** The engine at `sys/`: combines the lists of paths of the other files. */
import type { Engine } from '../../engines/framework/engine.ts'
import { auditPaths } from './system-audit.ts'
import { wrappingPaths } from './system-wrapping.ts'
import { lockedUserPaths } from './system-locked-users.ts'
import { leasePaths } from './system-leases.ts'
import { validatePaths } from '../logins/validate-path.ts'
import { mfaSystemPaths } from '../mfa/system-paths.ts'
import { quotaPaths } from './system-quotas.ts'
import { capabilityPaths } from './system-capabilities.ts'
import { policyPaths } from '../policies/policy-paths.ts'
import { policyUiPaths } from '../policies/policy-ui-paths.ts'
import { healthPath } from './system-health.ts'
import { catalogPaths } from './system-catalog.ts'
import { configPaths } from './system-config.ts'
import { counterPaths, usagePaths } from './system-usage.ts'
import { hostPaths } from './system-host.ts'
import { openApiPaths } from './system-openapi.ts'
import { toolPaths } from './system-tools.ts'
import { mountPaths } from './system-mounts.ts'
import { uiMountPaths } from './system-ui.ts'
import { sealPaths } from './seal/system-seal.ts'
import { rekeyPaths } from './seal/system-seal-rekey.ts'
import { PgpRateLimit, sealLog } from './seal/seal-access.ts'
import { replicationPaths, secondaryAccess } from '../dr-endpoints/dr-paths.ts'
import { haPaths } from '../ha-endpoints/ha-paths.ts'
import { generateRootPaths } from './seal/system-seal-root.ts'
import { rotatePaths } from './seal/system-seal-rotate.ts'

/** The union of what the lists use. */
export type SystemParts = Parameters<typeof healthPath>[0] &
  Parameters<typeof mountPaths>[0] &
  Parameters<typeof uiMountPaths>[0] &
  Parameters<typeof hostPaths>[0] &
  Parameters<typeof configPaths>[0] &
  Parameters<typeof catalogPaths>[0] &
  Parameters<typeof counterPaths>[0] &
  Parameters<typeof usagePaths>[0] &
  Parameters<typeof openApiPaths>[0] &
  Parameters<typeof sealPaths>[0] &
  Parameters<typeof rekeyPaths>[0] &
  Parameters<typeof generateRootPaths>[0] &
  Parameters<typeof rotatePaths>[0] &
  Parameters<typeof policyPaths>[0] &
  Parameters<typeof capabilityPaths>[0] &
  Parameters<typeof auditPaths>[0] &
  Parameters<typeof leasePaths>[0] &
  Parameters<typeof lockedUserPaths>[0] &
  Parameters<typeof wrappingPaths>[0] &
  Parameters<typeof quotaPaths>[0] &
  Parameters<typeof replicationPaths>[0] &
  Parameters<typeof haPaths>[0] &
  Parameters<typeof mfaSystemPaths>[0] &
  Parameters<typeof validatePaths>[0]

export function systemEngine(core: SystemParts): Engine {
  const pgpRate = new PgpRateLimit()
  const access = secondaryAccess(core)
  return {
    type: 'system',
    description: 'system endpoints used for control, policy and debugging',
    isSingle: true,
    paths: [
      healthPath(core),
      ...haPaths(core, sealLog(core)),
      ...mountPaths(core),
      ...uiMountPaths(core),
      ...policyUiPaths(),
      ...hostPaths(core),
      ...configPaths(core),
      ...toolPaths(),
      ...catalogPaths(core),
      ...counterPaths(core),
      ...usagePaths(core),
      ...openApiPaths(core),
      ...sealPaths(core, pgpRate, access),
      ...rekeyPaths(core, pgpRate),
      ...generateRootPaths(core, pgpRate),
      ...rotatePaths(core),
      ...replicationPaths(core, access, { logEvent: sealLog(core), pgpRate }),
      ...policyPaths(core),
      ...capabilityPaths(core),
      ...auditPaths(core),
      ...leasePaths(core),
      ...lockedUserPaths(core),
      ...wrappingPaths(core),
      ...quotaPaths(core),
      ...mfaSystemPaths(core),
      ...validatePaths(core),
    ],
  }
}
