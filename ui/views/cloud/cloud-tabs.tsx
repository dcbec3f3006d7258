import { pathOf } from '../../app/location.ts'
import { Tabs } from '../../components/tabs.tsx'

type CloudTab = 'roles' | 'static-roles' | 'orphans' | 'root'

const TITLES: Readonly<Record<CloudTab, string>> = {
  roles: 'Roles',
  'static-roles': 'Static roles',
  orphans: 'Users without a lease',
  root: 'Root credentials',
}

export function CloudTabs({ current, mount }: { readonly mount: string; readonly current: CloudTab }) {
  const tabs = (Object.keys(TITLES) as CloudTab[]).map((tab) => ({
    title: TITLES[tab],
    to: tab === 'roles' ? pathOf('cloud', mount) : pathOf('cloud', mount, tab),
    isCurrent: tab === current,
  }))
  return <Tabs label={`Cloud engine ${mount}`} tabs={tabs} />
}
